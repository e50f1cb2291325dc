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
from tests.agents.test_versions import version
from tests.support.api_client import Caller
from tests.support.cast import Cast
from tests.support.office import Office

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
    tool = {
        "name": "set_privileges",
        "description": "Set what an account may do.",
        "schema": {
            "type": "object",
            "properties": {"level": {"type": "integer", "minimum": 1}, "key": {"type": "string"}},
            "required": ["level"],
        },
        "effect": "write",
        "risk": "high",
        "approval": True,
        "sentence": "Set the level to {level}",
        "deadline": 30.0,
        "secret_args": ["key"],
        "secret_result": True,
    }
    facts: dict[str, Any] = {
        "description": "Brings people in.",
        "fingerprint": "sha256:abc",
        "input_schema": SCHEMA,
        "tools": [tool],
        "subagents": ["account_agent"],
        "steps": ["Ask", "Do"],
    }
    return PublishedAgent.objects.create(name=name, **{**facts, **more})


def _text(client: Client, path: str, status: int = 200) -> str:
    response = client.get(path)
    assert response.status_code == status
    return response.content.decode()


# The page of an agent


def test_the_list_leads_to_every_agent(ada: Client, bea: Client, joiner: PublishedAgent) -> None:
    page = _text(ada, "/agents/")
    assert 'href="/agents/joiner/"' in page
    assert 'href="/agents/joiner/start/"' in page
    assert "Brings people in." in page
    assert "/start/" not in _text(bea, "/agents/")


def test_without_agents_the_list_says_how_to_get_some(ada: Client) -> None:
    page = _text(ada, "/agents/")
    assert "No agents yet" in page
    assert "ABEYANCE_AGENTS" in page


def test_the_agent_page_shows_effect_and_risk_of_tools(bea: Client, joiner: PublishedAgent) -> None:
    page = _text(bea, "/agents/joiner/")
    for words in (
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
    ):
        assert words in page
    assert "Start a run" not in page


def test_the_agent_page_shows_the_result_type(ada: Client, cast: Cast) -> None:
    facts = {"name": "quotes", "output": {"properties": {"euros": {"type": "integer"}}}}
    version = AgentVersion(fingerprint=sha256_of(facts), agent="quotes", facts=json.dumps(facts))
    version.save()
    _publish("quotes", fingerprint=version.fingerprint)
    page = _text(ada, "/agents/quotes/")
    assert '<dt><bdi>euros</bdi> <span class="ty"><bdi>integer</bdi> · optional' in page
    _publish("texts")
    assert "A text." in _text(ada, "/agents/texts/")


def test_a_sub_agent_that_is_published_is_a_link(ada: Client, joiner: PublishedAgent) -> None:
    assert 'href="/agents/account_agent/"' not in _text(ada, "/agents/joiner/")
    _publish("account_agent", subagents=[])
    assert 'href="/agents/account_agent/"' in _text(ada, "/agents/joiner/")


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
        page = _text(ada, "/agents/hr_onboarding/")
    assert page.count('class="row"') == 10
    assert "key-10" in page
    assert "key-0<" not in page
    assert "None that you may read." in _text(bea, "/agents/hr_onboarding/")


@pytest.mark.parametrize("name", ["stranger", "a/b", "%00", "x" * 2000])
def test_an_agent_that_is_not_published_is_not_found(ada: Client, name: str) -> None:
    for path in (f"/agents/{name}/", f"/agents/{name}/start/"):
        assert ada.get(path).status_code == 404
        assert ada.post(path).status_code in (404, 405)


def test_authors_texts_are_escaped(ada: Client, cast: Cast) -> None:
    rule = {"type": "string", "title": HOSTILE, "description": HOSTILE, "enum": [HOSTILE]}
    hostile = {"type": "object", "properties": {HOSTILE: rule}, "required": [HOSTILE]}
    tool = {
        **_publish("other").tools[0],
        "name": HOSTILE,
        "description": HOSTILE,
        "sentence": HOSTILE,
        "schema": hostile,
        "risk": "high",
        "secret_args": [HOSTILE],
    }
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
        page = _text(ada, path)
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "⟦U+202E⟧" in page
    answer = ada.post("/agents/hostile/start/", {f"in.{HOSTILE}": HOSTILE}).content.decode()
    assert "<script>alert" not in answer


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
    page = _text(bea, "/agents/joiner/start/", 403)
    assert "You may not start runs" in page
    assert "does not have the right runs:start" in page
    assert bea.post("/agents/joiner/start/", TYPED).status_code == 403
    assert not Run.objects.exists()


def test_agents_are_not_offered_to_people_without_a_role(
    cyril: Client, ada: Client, joiner: PublishedAgent
) -> None:
    assert "/agents/" not in _text(cyril, "/runs/")
    assert 'href="/agents/"' in _text(ada, "/runs/")


def test_starting_needs_a_login(joiner: PublishedAgent) -> None:
    for path in ("/agents/", "/agents/joiner/", "/agents/joiner/start/"):
        answer = Client().get(path)
        assert answer.headers["Location"].startswith("/login/")


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
    answer = ada.post("/agents/joiner/start/", typed)
    page = answer.content.decode()
    assert answer.status_code == 422
    errors = re.findall(r'<p class="error"[^>]*><bdi>([^<]*)</bdi> ([^<]*)\.</p>', page)
    assert errors == [
        ("Full Name", "must have at most 200 characters"),
        ("email", "must be a valid email"),
        ("security_level", "must be at most 5"),
        ("Office", "is missing"),
        ("tags", "must be JSON"),
        ("hours", "must be a number"),
    ]
    for text in ("x" * 201, "stranger", "many", "HR-2"):
        assert f'value="{text}"' in page
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
    _publish("lister", input_schema={"type": "array", "items": {"type": "integer"}})
    answer = ada.post("/agents/lister/start/", {"in.input": '["x"]'})
    assert answer.status_code == 422
    assert "must be of type integer" in answer.content.decode()
    assert ada.post("/agents/lister/start/", {"in.input": "[1]"}).status_code == 302
    assert Run.objects.get().input == "[1]"


def test_an_agent_that_is_given_nothing_starts_at_once(ada: Client, cast: Cast) -> None:
    _publish("idle", input_schema={"type": "object", "properties": {}})
    assert "This agent has no input." in _text(ada, "/agents/idle/start/")
    assert ada.post("/agents/idle/start/").status_code == 302
    assert Run.objects.get().input == "{}"


def test_a_business_key_finds_its_run_and_refuses_another_input(
    ada: Client, joiner: PublishedAgent
) -> None:
    path, first = "/agents/joiner/start/", {**TYPED, "business_key": "HR-3"}
    started = ada.post(path, first).headers["Location"]
    assert ada.post(path, first).headers["Location"] == started
    answer = ada.post(path, {**first, "in.security_level": "4"})
    assert answer.status_code == 409
    assert "has started a run with another input already" in answer.content.decode()
    for key in ("x" * 201, "a\x00b"):
        answer = ada.post(path, {**TYPED, "business_key": key})
        assert answer.status_code == 422
        assert "Business key " in answer.content.decode()
    assert Run.objects.count() == 1


# Sending it twice


def test_a_form_that_is_sent_twice_starts_one_run(ada: Client, joiner: PublishedAgent) -> None:
    page = _text(ada, "/agents/joiner/start/")
    (number,) = re.findall(r'name="form" value="([^"]+)"', page)
    answers = [ada.post("/agents/joiner/start/", {**TYPED, "form": number}) for _ in range(2)]
    assert answers[0].headers["Location"] == answers[1].headers["Location"]
    assert Run.objects.count() == 1
    (other,) = re.findall(r'name="form" value="([^"]+)"', _text(ada, "/agents/joiner/start/"))
    assert ada.post("/agents/joiner/start/", {**TYPED, "form": other}).status_code == 302
    assert Run.objects.count() == 2


def test_a_form_that_started_nothing_may_be_sent_again(ada: Client, joiner: PublishedAgent) -> None:
    number = str(uuid4())
    wrong = {**TYPED, "form": number, "business_key": "a\x00b"}
    assert ada.post("/agents/joiner/start/", wrong).status_code == 422
    assert not FormSubmission.objects.exists()
    assert ada.post("/agents/joiner/start/", {**TYPED, "form": number}).status_code == 302


def test_a_form_of_another_person_does_not_lead_to_their_run(
    ada: Client, admin: Client, joiner: PublishedAgent
) -> None:
    number = str(uuid4())
    first = ada.post("/agents/joiner/start/", {**TYPED, "form": number})
    second = admin.post("/agents/joiner/start/", {**TYPED, "form": number})
    assert second.status_code == 302
    assert first.headers["Location"] != second.headers["Location"]


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
