"""The published agents: rows that the web answers from without importing author code."""

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from django.db import connection, connections

from agents.catalogue.published import Catalogue, publish
from agents.models import PublishedAgent
from agents.registry import Registry
from runtime.errors import InvalidInput, UnknownAgent
from runtime.ports.agents import AgentCatalogue
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


@pytest.mark.django_db
def test_publishing_again_changes_nothing_but_the_time(hr: Registry) -> None:
    publish(hr)
    before = _rows()
    assert len(before) == len(hr.agents)
    for change in ({}, {"fingerprint": "sha256:old", "tools": []}):
        if change:
            PublishedAgent.objects.update(**change)
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


@pytest.mark.django_db
def test_the_catalogue_checks_input_by_the_published_schema(hr: Registry) -> None:
    publish(hr)
    catalogue: AgentCatalogue = Catalogue()
    catalogue.check_input("hr_onboarding", NEWCOMER)
    with pytest.raises(InvalidInput) as caught:
        catalogue.check_input("hr_onboarding", {**NEWCOMER, "security_level": 100})
    assert caught.value.field == "input.security_level"
    with pytest.raises(UnknownAgent, match="no agent named stranger"):
        catalogue.check_input("stranger", NEWCOMER)
    for name in ("stranger\x00", "\ud800"):
        with pytest.raises(UnknownAgent):
            catalogue.check_input(name, NEWCOMER)


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
"""


@pytest.mark.django_db(transaction=True)
def test_reading_the_catalogue_imports_no_author_code(hr: Registry) -> None:
    publish(hr)
    settings = connection.settings_dict
    where = {key: settings[key] for key in ("ENGINE", "NAME", "USER", "PASSWORD", "HOST", "PORT")}
    done = subprocess.run(
        [sys.executable, "-c", ASK, json.dumps(where), json.dumps(NEWCOMER)],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "DJANGO_SETTINGS_MODULE": "config.settings"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == []
