"""The pages of agents, and the form that starts a run."""

import json
import re
from threading import Barrier, Thread
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from agents.catalogue.published import publish
from agents.models import AgentVersion, FormSubmission, PublishedAgent
from agents.registry import Registry
from agents.web import start_form
from agents.web.start import start_once
from runtime.core.digest import sha256_of
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support.api_client import Caller
from tests.support.cast import Cast
from tests.support.office import Office
from tests.support.pages import has, shows, text, text_of
from tests.support.published import published as published_agent
from tests.support.specs import version

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "full_name": {"type": "string", "title": "Full Name", "maxLength": 200},
        "email": {"type": "string", "format": "email", "pattern": "^[^@]+@[^@]+$"},
        "since": {"type": "string", "format": "date"},
        "security_level": {"type": "integer", "minimum": 1, "maximum": 5},
        "hours": {"anyOf": [{"type": "number"}, {"type": "null"}], "default": None},
        "remote": {"type": "boolean", "default": False},
        "office": {"$ref": "#/$defs/Office"},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "$defs": {"Office": {"enum": ["north", "south"], "type": "string", "title": "Office"}},
    "required": ["full_name", "email", "security_level", "office"],
    "additionalProperties": False,
}
TYPED = {
    "in.full_name": "New Hire",
    "in.email": "newhire@example.org",
    "in.security_level": "3",
    "in.office": '"south"',
}
START = "/agents/joiner/start/"


@pytest.fixture
def joiner(cast: Cast) -> PublishedAgent:
    """An agent with a form of every kind of field, and one tool."""
    return _publish("joiner")


def _publish(name: str, **more: Any) -> PublishedAgent:
    return published_agent(name, **{"input_schema": SCHEMA, **more})


# The page of an agent


def test_the_agent_page_shows_its_tools_and_its_result(bea: Client, joiner: PublishedAgent) -> None:
    shows(bea, "/agents/", 'href="/agents/joiner/"', "Brings people in.", hides=["/start/"])
    shows(
        bea,
        "/agents/joiner/",
        "integer · at least 1",
        "secret: only the tool sees it",
        "Its result is secret",
        "approval required",
        "Not retried automatically. After a crash a person is asked whether it happened.",
        "High risk",
        "Set the level to {level}",
        "sha256:abc",
        "<bdi>account_agent</bdi>",
        "string · email",
        "None that you may read.",
        "A text.",
        hides=["Start a run", 'href="/agents/account_agent/"'],
    )
    facts = {"name": "joiner", "output": {"properties": {"euros": {"type": "integer"}}}}
    version = AgentVersion(fingerprint=sha256_of(facts), agent="joiner", facts=json.dumps(facts))
    version.save()
    PublishedAgent.objects.update(fingerprint=version.fingerprint)
    _publish("account_agent", subagents=[])
    euros = '<dt><bdi>euros</bdi> <span class="ty"><bdi>integer</bdi> · optional'
    shows(bea, "/agents/joiner/", 'href="/agents/account_agent/"', euros)


def test_its_last_ten_runs_are_those_the_reader_may_read(
    ada: Client,
    bea: Client,
    office: Office,
    published: None,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    for number in range(11):
        office.start(key=f"key-{number}", advanced=False)
    with django_assert_max_num_queries(12):
        page = shows(ada, "/agents/hr_onboarding/", "key-10", hides=["key-0<"])
    assert page.count('class="row"') == 10
    shows(bea, "/agents/hr_onboarding/", "None that you may read.")
    for name in ("stranger", "a/b", "%00", "x" * 2000):
        for path in (f"/agents/{name}/", f"/agents/{name}/start/"):
            assert ada.get(path).status_code == 404


def test_programs_get_schemas_and_terms(ada_api: Caller, cast: Cast) -> None:
    spec = version()
    publish(Registry(agents={spec.name: spec}))
    (found,) = ada_api.get("/agents").json()["items"]
    assert (found["fingerprint"], found["output_schema"]) == (spec.fingerprint, None)
    assert found["input_schema"] == spec.input_schema
    (tool,) = found["tools"]
    assert tool == {
        "name": "greet",
        "description": spec.tools[0].description,
        "input_schema": spec.tools[0].schema,
        "effect": spec.tools[0].effect,
        "risk": spec.tools[0].risk,
        "approval": False,
        "deadline": spec.tools[0].deadline,
    }
    assert found["subagents"] == [child.name for child in spec.subagents]


# The form


def test_a_run_starts_from_the_typed_input(
    ada: Client, bea: Client, joiner: PublishedAgent
) -> None:
    why = ("You may not start runs", "does not have the right runs:start")
    shows(bea, START, *why, status=403)
    more = {"in.hours": "37.5", "in.remote": "true", "in.tags": '["a"]', "in.since": "2026-12-01"}
    answer = ada.post(START, {**TYPED, **more, "business_key": " HR-1 "})
    run = Run.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{run.id}/")
    assert (run.agent, run.requester, run.business_key) == ("joiner", "ada", "HR-1")
    assert json.loads(run.input) == {
        "full_name": "New Hire",
        "email": "newhire@example.org",
        "security_level": 3,
        "office": "south",
        "since": "2026-12-01",
        "hours": 37.5,
        "remote": True,
        "tags": ["a"],
    }


def test_every_invalid_field_shows_its_error(ada: Client, joiner: PublishedAgent) -> None:
    typed = {
        "in.full_name": "x" * 201,
        "in.email": "stranger",
        "in.security_level": "9",
        "in.hours": "many",
        "in.tags": "[",
        "business_key": "HR-2",
    }
    page = text_of(ada.post(START, typed), 422)
    errors = re.findall(r'<p class="error"[^>]*><bdi>([^<]*)</bdi> ([^<]*)\.</p>', page)
    assert errors == [
        ("Full Name", "must have at most 200 characters"),
        ("email", "must be a valid email"),
        ("security_level", "must be at most 5"),
        ("Office", "is missing"),
        ("tags", "must be JSON"),
        ("hours", "must be a number"),
    ]
    has(page, *(f'value="{value}"' for value in ("x" * 201, "stranger", "many", "HR-2")))
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    ("name", "typed", "error"),
    [
        ("security_level", "3.0", "must be a whole number"),
        ("security_level", "9" * 400, "must be a whole number"),
        ("security_level", "٣", "must be a whole number"),
        ("hours", "NaN", "must be a number"),
        ("office", '"east"', "breaks the limit enum"),
        ("office", "east", "is not a choice"),
        ("remote", "1", "must be of type boolean"),
        ("tags", "[NaN]", "must be JSON"),
        ("tags", "[" * 100_000, "must be JSON"),
        ("full_name", "\ud800", "contains half of a surrogate pair"),
    ],
)
def test_typed_values_are_checked_by_their_kind(name: str, typed: str, error: str) -> None:
    form, _ = start_form.read(SCHEMA, {**TYPED, f"in.{name}": typed})
    assert error in form.problems[name]


def test_schemas_without_fields_have_a_form(ada: Client, cast: Cast) -> None:
    _publish("lister", input_schema={"type": "array", "items": {"type": "integer"}})
    refused = ada.post("/agents/lister/start/", {"in.input": '["x"]'})
    has(text_of(refused, 422), "must be of type integer")
    assert ada.post("/agents/lister/start/", {"in.input": "[1]"}).status_code == 302
    assert Run.objects.get().input == "[1]"
    _publish("idle", input_schema={"type": "object", "properties": {}})
    shows(ada, "/agents/idle/start/", "This agent has no input.")
    assert ada.post("/agents/idle/start/").status_code == 302
    assert Run.objects.get(agent="idle").input == "{}"


def test_a_business_key_finds_its_run_and_refuses_another_input(
    ada: Client, joiner: PublishedAgent
) -> None:
    first = {**TYPED, "business_key": "HR-3"}
    started = ada.post(START, first)["Location"]
    assert ada.post(START, first)["Location"] == started
    other = text_of(ada.post(START, {**first, "in.security_level": "4"}), 409)
    has(other, "has started a run with another input already")
    has(text_of(ada.post(START, {**TYPED, "business_key": "x" * 201}), 422), "Business key ")
    assert Run.objects.count() == 1


def test_a_form_that_is_sent_twice_starts_one_run(
    ada: Client, admin: Client, joiner: PublishedAgent
) -> None:
    """One per form and person, and none per form that was refused."""
    hidden = r'name="form" value="([^"]+)"'
    (one,), (other,) = (re.findall(hidden, text(ada, START)) for _ in range(2))
    wrong = {**TYPED, "form": one, "business_key": "a\x00b"}
    assert ada.post(START, wrong).status_code == 422
    assert not FormSubmission.objects.exists()
    sent = [(ada, one), (ada, one), (ada, other), (admin, one)]
    led = [client.post(START, {**TYPED, "form": form})["Location"] for client, form in sent]
    assert led[0] == led[1]
    assert len(set(led)) == Run.objects.count() == 3


def test_two_clicks_at_once_start_one_run(office: Office, joiner: PublishedAgent) -> None:
    number, ready, runs = uuid4(), Barrier(2), list[UUID]()
    typed = {"full_name": "New", "email": "a@b.c", "security_level": 1, "office": "north"}
    given: dict[str, Any] = {"form": number, "agent": "joiner", "input": typed}

    def click() -> None:
        try:
            ready.wait(60)
            runs.append(start_once(**given, business_key=None, actor=Actor(person="ada")))
        finally:
            connection.close()

    clicks = [Thread(target=click) for _ in range(2)]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join(30)
    assert len(runs) == 2
    assert len(set(runs)) == Run.objects.count() == 1
