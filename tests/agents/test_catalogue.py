"""The published agents, which the web answers from without author code, and inputs checked by their schema."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from django.db import connection, connections
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from agents.catalogue.published import publish
from agents.models import PublishedAgent
from agents.registry import Registry
from agents.sdk import inputs
from agents.tools.person_fields import EmailAddress, FullName, Username
from config.env.environment import ROOT
from runtime.errors import InvalidInput
from tests.support.specs import NEWCOMER


def _rows() -> list[dict[str, object]]:
    rows = PublishedAgent.objects.order_by("name").values()
    return [{key: value for key, value in row.items() if key != "published_at"} for row in rows]


@pytest.mark.django_db
def test_published_agents_match_the_workers(hr: Registry) -> None:
    publish(hr)
    row = PublishedAgent.objects.get(name="hr_onboarding")
    agent = hr.get("hr_onboarding")
    assert (row.fingerprint, row.input_schema) == (agent.fingerprint, agent.input_schema)
    assert (row.subagents, row.steps) == (["account_agent"], list(agent.steps or ()))
    (mail,) = row.tools
    facts = {"name": "send_welcome_mail", "effect": "write", "risk": "low", "approval": False}
    assert mail == {**mail, **facts, "schema": agent.tools[0].schema}
    before = _rows()
    assert len(before) == len(hr.agents)
    PublishedAgent.objects.update(fingerprint="sha256:old", tools=[])
    publish(hr)
    assert _rows() == before


@pytest.mark.django_db(transaction=True)
def test_several_workers_may_publish_at_once(hr: Registry) -> None:
    start = Barrier(4)

    def worker(_: int) -> None:
        try:
            for _round in range(5):
                start.wait(60)
                publish(hr)
        finally:
            connections["default"].close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(worker, range(4)))
    assert len(_rows()) == len(hr.agents)


ASK = """
import json, sys
import django
from django.conf import settings
settings.DATABASES["default"].update(json.loads(sys.argv[1]))
django.setup()
from runtime.ports import wiring
from agents.catalogue.published import Catalogue
wiring.plug(catalogue=Catalogue())
wiring.catalogue().check_input("hr_onboarding", json.loads(sys.argv[2]))
foreign = ("agents.flows", "agents.tools", "agents.llm", "agents.sdk.scripts", "pydantic_ai", "scim2_client")
print(json.dumps([name for name in sys.modules if name.startswith(foreign)]))
import agents.effect_handler, agents.flows.hr
print({"openai", "anthropic"} & {*sys.modules})
"""


@pytest.mark.django_db(transaction=True)
def test_a_process_imports_neither_author_code_nor_clients_early(hr: Registry) -> None:
    """The web answers from the catalogue; a worker imports a provider's client at the first call."""
    publish(hr)
    settings = connection.settings_dict
    where = {key: settings[key] for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(where), json.dumps(NEWCOMER)],
        cwd=ROOT,
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["[]", "set()"]


@pytest.mark.parametrize(
    ("change", "field", "detail"),
    [
        ({"security_level": 100}, "input.security_level", "must be at most 99"),
        ({"security_level": 3.0}, "input.security_level", "must be of type integer"),
        ({"security_level": True}, "input.security_level", "must be of type integer"),
        ({"email": "new.hire@example.com\n"}, "input.email", "must be a valid email"),
        ({"email": "n@" + "a." * 150 + "a"}, "input.email", "at most 254 characters"),
        ({"full_name": ""}, "input.full_name", "must have at least 1 characters"),
        ({"full_name": "New\r\nBcc: all@example.com"}, "input.full_name", "must match"),
        ({"admin": True}, "input.admin", "is not expected"),
        ({"full_name": "\x00"}, "input.full_name", "NUL"),
        ({"full_name": "x" * 70_000}, "input", "at most 65536"),
    ],
)
def test_the_field_and_the_limit_are_named(
    hr: Registry, change: dict[str, Any], field: str, detail: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        inputs.check(hr.get("hr_onboarding").input_schema, {**NEWCOMER, **change})
    assert caught.value.field == field
    assert detail in caught.value.detail


@given(
    kind=st.sampled_from(
        [(FullName, "full_name"), (EmailAddress, "email"), (Username, "username")]
    ),
    text=st.text(max_size=20) | st.from_regex(r"\A[a-z0-9.@+\n-]{1,12}\n?\Z"),
)
def test_web_and_tool_accept_the_same_texts(kind: tuple[Any, str], text: str) -> None:
    adapter: TypeAdapter[str] = TypeAdapter(kind[0])
    try:
        adapter.validate_python(text)
        allowed = "\x00" not in text
    except ValidationError:
        allowed = False
    try:
        inputs.check({"properties": {kind[1]: adapter.json_schema()}}, {kind[1]: text})
        assert allowed
    except InvalidInput:
        assert not allowed
