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
from tests.support.published import TOOL
from tests.support.published import published as published_agent
from tests.support.specs import version

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(1)>\u202e'

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


@pytest.fixture
def joiner(cast: Cast) -> PublishedAgent:
    """An agent with a form of every kind of field, and one tool."""
    return _publish("joiner")


def _publish(name: str, **more: Any) -> PublishedAgent:
    return published_agent(name, **{"input_schema": SCHEMA, **more})


# The page of an agent


def test_the_list_leads_to_every_agent(
    ada: Client, bea: Client, cyril: Client, joiner: PublishedAgent
) -> None:
    start = 'href="/agents/joiner/start/"'
    shows(ada, "/agents/", 'href="/agents/joiner/"', start, "Brings people in.")
    shows(bea, "/agents/", hides=["/start/"])
    shows(ada, "/runs/", 'href="/agents/"')
    shows(cyril, "/runs/", hides=["/agents/"])


def test_without_agents_the_list_says_how_to_get_some(ada: Client) -> None:
    shows(ada, "/agents/", "No agents yet", "ABEYANCE_AGENTS")


def test_the_agent_page_shows_effect_and_risk_of_tools(bea: Client, joiner: PublishedAgent) -> None:
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
        hides=["Start a run", 'href="/agents/account_agent/"'],
    )
    _publish("account_agent", subagents=[])
    shows(bea, "/agents/joiner/", 'href="/agents/account_agent/"')


def test_the_agent_page_shows_the_result_type(ada: Client, cast: Cast) -> None:
    facts = {"name": "quotes", "output": {"properties": {"euros": {"type": "integer"}}}}
    version = AgentVersion(fingerprint=sha256_of(facts), agent="quotes", facts=json.dumps(facts))
    version.save()
    _publish("quotes", fingerprint=version.fingerprint)
    euros = '<dt><bdi>euros</bdi> <span class="ty"><bdi>integer</bdi> · optional'
    shows(ada, "/agents/quotes/", euros)
    _publish("texts")
    shows(ada, "/agents/texts/", "A text.")


def test_its_last_ten_runs_are_those_the_reader_may_read(
    ada: Client,
    bea: Client,
    office: Office,
    published: None,
    django_assert_max_num_queries: DjangoAssertNumQueries,
) -> None:
    path = "/agents/hr_onboarding/"
    for number in range(11):
        office.start(key=f"key-{number}", advanced=False)
    with django_assert_max_num_queries(12):
        page = shows(ada, path, "key-10", hides=["key-0<"])
    assert page.count('class="row"') == 10
    shows(bea, path, "None that you may read.")


@pytest.mark.parametrize("name", ["stranger", "a/b", "%00", "x" * 2000])
def test_an_agent_that_is_not_published_is_not_found(ada: Client, name: str) -> None:
    for path in (f"/agents/{name}/", f"/agents/{name}/start/"):
        assert ada.get(path).status_code == 404
        assert ada.post(path).status_code in (404, 405)


def test_authors_texts_are_escaped(ada: Client, cast: Cast) -> None:
    rule = {"type": "string", "title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE]}
    hostile = {"type": "object", "properties": {HOSTILE: rule}, "required": [HOSTILE]}
    texts = dict.fromkeys(("name", "description", "sentence"), HOSTILE)
    tool = {**TOOL, **texts, "schema": hostile, "secret_args": [HOSTILE]}
    _publish(
        "hostile",
        description=HOSTILE,
        fingerprint=HOSTILE,
        input_schema=hostile,
        tools=[tool],
        subagents=[HOSTILE],
        steps=[HOSTILE],
    )
    _publish(HOSTILE)
    for path in ("/agents/", "/agents/hostile/", "/agents/hostile/start/"):
        shows(ada, path, "⟦U+202E⟧", hides=["<script>alert", "<img"])
    answer = ada.post("/agents/hostile/start/", {f"in.{HOSTILE}": HOSTILE}).content.decode()
    has(answer, hides=["<script>alert"])


def test_programs_get_schemas_and_terms(ada_api: Caller, cast: Cast) -> None:
    spec = version()
    publish(Registry(agents={spec.name: spec}))
    (found,) = ada_api.get("/agents").json()["items"]
    assert found["fingerprint"] == spec.fingerprint
    assert found["input_schema"] == spec.input_schema
    assert found["output_schema"] is None
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


# Who may start one


def test_a_run_starts_from_the_typed_input(ada: Client, joiner: PublishedAgent) -> None:
    more = {"in.hours": "37.5", "in.remote": "true", "in.tags": '["a"]', "in.since": "2026-12-01"}
    answer = ada.post("/agents/joiner/start/", {**TYPED, **more, "business_key": " HR-1 "})
    run = Run.objects.get()
    assert (answer.status_code, answer.headers["Location"]) == (302, f"/runs/{run.id}/")
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


def test_a_person_without_the_right_to_start_is_told_why(
    bea: Client, joiner: PublishedAgent
) -> None:
    why = ("You may not start runs", "does not have the right runs:start")
    shows(bea, "/agents/joiner/start/", *why, status=403)
    assert bea.post("/agents/joiner/start/", TYPED).status_code == 403
    assert not Run.objects.exists()


# Errors stand at their fields, and typed values are kept


def test_every_invalid_field_shows_its_error(ada: Client, joiner: PublishedAgent) -> None:
    typed = {
        "in.full_name": "x" * 201,
        "in.email": "stranger",
        "in.security_level": "9",
        "in.hours": "many",
        "in.tags": "[",
        "business_key": "HR-2",
    }
    page = text_of(ada.post("/agents/joiner/start/", typed), 422)
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
        ("security_level", "1e3", "must be a whole number"),
        ("security_level", "9" * 400, "must be a whole number"),
        ("security_level", "٣", "must be a whole number"),
        ("hours", "NaN", "must be a number"),
        ("hours", "1e99", ""),
        ("office", '"east"', "breaks the limit enum"),
        ("office", "east", "is not a choice"),
        ("remote", "maybe", "is not a choice"),
        ("remote", "1", "must be of type boolean"),
        ("tags", "[NaN]", "must be JSON"),
        ("tags", "[" * 100_000, "must be JSON"),
        ("tags", '["\\ud800"]', "contains half of a surrogate pair"),
        ("full_name", "\ud800", "contains half of a surrogate pair"),
    ],
)
def test_typed_values_are_checked_by_their_kind(name: str, typed: str, error: str) -> None:
    form, _ = start_form.read(SCHEMA, {**TYPED, f"in.{name}": typed})
    if error:
        assert error in form.problems[name]


def test_a_schema_of_something_else_is_typed_as_json(ada: Client, cast: Cast) -> None:
    path = "/agents/lister/start/"
    _publish("lister", input_schema={"type": "array", "items": {"type": "integer"}})
    has(text_of(ada.post(path, {"in.input": '["x"]'}), 422), "must be of type integer")
    assert ada.post(path, {"in.input": "[1]"}).status_code == 302
    assert Run.objects.get().input == "[1]"


def test_an_agent_that_is_given_nothing_starts_at_once(ada: Client, cast: Cast) -> None:
    _publish("idle", input_schema={"type": "object", "properties": {}})
    shows(ada, "/agents/idle/start/", "This agent has no input.")
    assert ada.post("/agents/idle/start/").status_code == 302
    assert Run.objects.get().input == "{}"


def test_a_business_key_finds_its_run_and_refuses_another_input(
    ada: Client, joiner: PublishedAgent
) -> None:
    path, first = "/agents/joiner/start/", {**TYPED, "business_key": "HR-3"}
    started = ada.post(path, first).headers["Location"]
    assert ada.post(path, first).headers["Location"] == started
    other = text_of(ada.post(path, {**first, "in.security_level": "4"}), 409)
    has(other, "has started a run with another input already")
    for key in ("x" * 201, "a\x00b"):
        has(text_of(ada.post(path, {**TYPED, "business_key": key}), 422), "Business key ")
    assert Run.objects.count() == 1


# Sending it twice


def test_a_form_that_is_sent_twice_starts_one_run(
    ada: Client, admin: Client, joiner: PublishedAgent
) -> None:
    """One per form and person, and none per form that was refused."""
    path, hidden = "/agents/joiner/start/", r'name="form" value="([^"]+)"'
    (one,), (other,) = (re.findall(hidden, text(ada, path)) for _ in range(2))
    wrong = {**TYPED, "form": one, "business_key": "a\x00b"}
    assert ada.post(path, wrong).status_code == 422
    assert not FormSubmission.objects.exists()
    sent = [(ada, one), (ada, one), (ada, other), (admin, one)]
    led = [client.post(path, {**TYPED, "form": form})["Location"] for client, form in sent]
    assert led[0] == led[1]
    assert len(set(led)) == Run.objects.count() == 3


def test_two_clicks_at_once_start_one_run(office: Office, joiner: PublishedAgent) -> None:
    number, ready, runs = uuid4(), Barrier(2), list[UUID]()
    typed = {"full_name": "New", "email": "a@b.c", "security_level": 1, "office": "north"}

    def click() -> None:
        try:
            ready.wait(60)
            ada = Actor(person="ada")
            runs.append(
                start_once(form=number, agent="joiner", input=typed, business_key=None, actor=ada)
            )
        finally:
            connection.close()

    clicks = [Thread(target=click) for _ in range(2)]
    for thread in clicks:
        thread.start()
    for thread in clicks:
        thread.join(30)
    assert len(runs) == 2
    assert len(set(runs)) == Run.objects.count() == 1
