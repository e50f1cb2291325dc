"""The pages of agents and their versions, and the form that starts a run."""

import json
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from agents.catalogue import queries
from agents.catalogue.published import forget_titles, publish
from agents.models import FormSubmission, PublishedAgent
from agents.registry import Registry
from agents.web.views import StartForm, start_once
from approvals.models import Approval
from runtime.core.documents.codec import decode_stored_text
from runtime.core.run.events import AgentChange
from runtime.core.values.enums import GateKind
from runtime.models import JournalEntry, Run, WorkerProcess
from runtime.ports.access import Actor
from runtime.ports.agents import VersionChange
from runtime.reads import run_figures
from runtime.reads.version_diff import MAX_LINES, VersionDifference, list_differences
from tests.support.api_client import Caller
from tests.support.engine import body
from tests.support.office import Office
from tests.support.pages import has, in_order, queries_at_most, send, shows, text, text_of
from tests.support.released import released
from tests.support.seeds import Cast
from tests.support.seeds import published as published_agent
from tests.support.specs import version
from tests.support.threads import together

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


def test_the_agent_page_shows_its_tools(bea: Client, joiner: PublishedAgent) -> None:
    shows(bea, "/agents/", 'href="/agents/joiner/"', "Brings people in.", hides=["/start/"])
    secret = ("secret: only the tool sees it", "Its result is secret")
    tool = ("approval required", "Not retried automatically", "High risk", *secret)
    hides = ["Start a run", 'href="/agents/account_agent/"']
    shows(bea, "/agents/joiner/", *tool, "Set the level to {level}", "A text.", hides=hides)
    _publish("account_agent", subagents=[])
    shows(bea, "/agents/joiner/", 'href="/agents/account_agent/"')


def test_sub_agents_are_folded_and_agents_and_tools_are_found(
    bea: Client, joiner: PublishedAgent
) -> None:
    _publish("account_agent", description="Makes accounts.", subagents=[])
    page = shows(bea, "/agents/", "1 sub-agent, called by other agents")
    in_order(page, "/agents/joiner/", "called by other agents", "/agents/account_agent/")
    alone = shows(bea, "/agents/?q=MAKES+account", "/agents/account_agent/", hides=["<details"])
    assert "/agents/joiner/" not in alone
    shows(bea, "/agents/?q=joiner+set_privileges", "/agents/joiner/")
    shows(bea, "/agents/?q=nothing-like-it", "No match")
    shows(bea, "/tools/?q=account_agent", "1 tool<", "<summary>2 arguments")
    shows(bea, "/tools/?q=nothing-like-it", "No match")
    has(text(bea, "/agents/?q=" + "x" * 300, 422), 'aria-invalid="true"', "The search must")


@pytest.mark.usefixtures("published")
def test_only_runs_that_one_may_read_are_listed(ada: Client, bea: Client, office: Office) -> None:
    for number in range(11):
        office.start(key=f"key-{number}", advanced=False)
    with queries_at_most(13):
        page = shows(ada, "/agents/hr_onboarding/", "key-10", hides=["key-0<"])
    assert page.count('class="row"') == 10
    shows(bea, "/agents/hr_onboarding/", "None that you may read.")
    for name in ("stranger", "x" * 2000):
        assert ada.get(f"/agents/{name}/").status_code == 404


def test_programs_get_schemas_and_terms(ada_api: Caller, bea: Client) -> None:
    spec = replace(version(), output_schema={"properties": {"euros": {"type": "integer"}}})
    publish(Registry(agents={spec.name: spec}))
    shows(
        bea, "/agents/greeter/", '<bdi>euros</bdi> <span class="ty"><bdi>integer</bdi> · optional'
    )
    (found,) = ada_api.get("/agents").json()["items"]
    for name in ("fingerprint", "input_schema", "output_schema"):
        assert found[name] == getattr(spec, name)
    (tool,), (greet,) = found["tools"], spec.tools
    assert (tool["name"], tool["input_schema"], tool["approval"]) == ("greet", greet.schema, False)
    for name in ("description", "effect", "risk", "deadline"):
        assert tool[name] == getattr(greet, name)
    assert found["subagents"] == [child.name for child in spec.subagents]


# The form


def test_a_run_starts_from_typed_input(ada: Client, bea: Client, joiner: PublishedAgent) -> None:
    why = ("You can't start runs", "<em>requesters</em>: <bdi>admin</bdi>")
    shows(bea, START, *why, status=403)
    shows(ada, START, "whole number · ", hides=["string ·", ">integer"])
    more = {"in.hours": "37.5", "in.remote": "true", "in.tags": '["a"]', "in.since": "2026-12-01"}
    answer = ada.post(START, {**TYPED, **more, "business_key": " HR-1 "})
    run = Run.objects.get()
    assert (answer.status_code, answer["Location"]) == (302, f"/runs/{run.id}/")
    assert (run.agent, run.requester, run.business_key) == ("joiner", "ada", "HR-1")
    texts = {"full_name": "New Hire", "email": "newhire@example.org", "office": "south"}
    others = {"security_level": 3, "hours": 37.5, "remote": True, "tags": ["a"]}
    assert json.loads(run.input) == {**texts, **others, "since": "2026-12-01"}


def test_every_invalid_field_shows_its_error(ada: Client, joiner: PublishedAgent) -> None:
    typed = {"in.full_name": "x" * 201, "in.email": "stranger", "in.security_level": "9"}
    unread = {"in.hours": "many", "in.tags": "["}
    page = text_of(ada.post(START, {**typed, **unread, "business_key": "HR-2"}), 422)
    errors = re.findall(r'<p class="error"[^>]*><bdi>([^<]*)</bdi> ([^<]*)\.</p>', page)
    assert errors == [
        ("Full Name", "must have at most 200 characters"),
        ("email", "must be a valid email"),
        ("security_level", "must be at most 5"),
        ("Office", "is missing: it must be one of north, south"),
        ("tags", "must be JSON"),
        ("hours", "must be a number"),
    ]
    has(page, *(f'value="{value}"' for value in ("x" * 201, "stranger", "many", "HR-2")))
    assert not Run.objects.exists()


def test_typed_values_are_checked_by_their_kind(joiner: PublishedAgent) -> None:
    agent = queries.find_agent(joiner.name)
    assert agent is not None
    for name, typed, error in (
        ("security_level", "3.0", "must be a whole number"),
        ("security_level", "9" * 400, "must be a whole number"),
        ("security_level", "٣", "must be a whole number"),
        ("hours", "NaN", "must be a number"),
        ("office", '"east"', "breaks the limit enum"),
        ("office", "east", "is not a choice"),
        ("tags", "[NaN]", "must be JSON"),
        ("tags", "[" * 100_000, "must be JSON"),
        ("full_name", "\ud800", "contains half of a surrogate pair"),
    ):
        form = StartForm(agent, {**TYPED, f"in.{name}": typed})
        assert error in form.errors[f"in.{name}"][0]


def test_schemas_without_fields_have_a_form(ada: Client, cast: Cast) -> None:
    _publish("lister", input_schema={"type": "array", "items": {"type": "integer"}})
    refused = ada.post("/agents/lister/start/", {"in.input": '["x"]'})
    has(text_of(refused, 422), "must be of type integer")
    for unreadable in ("[", ""):
        refused = ada.post("/agents/lister/start/", {"in.input": unreadable})
        has(text_of(refused, 422), "<bdi>Input</bdi> must be JSON.")
    assert ada.post("/agents/lister/start/", {"in.input": "[1]"}).status_code == 302
    assert Run.objects.get().input == "[1]"
    _publish("idle", input_schema={"type": "object", "properties": {}})
    assert ada.post("/agents/idle/start/").status_code == 302
    assert Run.objects.get(agent="idle").input == "{}"


def test_one_form_sent_twice_is_one_run(ada: Client, admin: Client, joiner: PublishedAgent) -> None:
    hidden = r'name="form" value="([^"]+)"'
    (one,), (other,) = (re.findall(hidden, text(ada, START)) for _ in range(2))
    wrong = {**TYPED, "form": one, "business_key": "a\x00b"}
    assert ada.post(START, wrong).status_code == 422
    assert not FormSubmission.objects.exists()
    sent = [(ada, one), (ada, one), (ada, other), (admin, one)]
    led = [client.post(START, {**TYPED, "form": form})["Location"] for client, form in sent]
    assert led[0] == led[1]
    assert len(set(led)) == Run.objects.count() == 3
    keyed = {**TYPED, "business_key": "HR-3"}
    assert ada.post(START, keyed)["Location"] == ada.post(START, keyed)["Location"]
    other = text_of(ada.post(START, {**keyed, "in.security_level": "4"}), 409)
    has(other, "has started a run with another input already")


def test_the_form_says_that_no_worker_has_the_agent(ada: Client, joiner: PublishedAgent) -> None:
    note = "<h2>No live worker has this agent</h2>"
    _worker(greeter="sha256:greeter")
    shows(ada, START, note, "waits until a worker with the agent starts")
    _worker(joiner=joiner.fingerprint)
    shows(ada, START, hides=[note])


def test_two_clicks_at_once_start_one_run(office: Office, joiner: PublishedAgent) -> None:
    number, runs = uuid4(), list[UUID]()
    typed = {"full_name": "New", "email": "a@b.c", "security_level": 1, "office": "north"}
    given: dict[str, Any] = {"form": number, "agent": "joiner", "input": typed}

    def click() -> None:
        runs.append(start_once(**given, business_key=None, actor=Actor(person="ada")))

    together([click, click])
    assert len(runs) == 2
    assert len(set(runs)) == Run.objects.count() == 1


def _worker(**agents: str) -> None:
    WorkerProcess.objects.create(id=uuid4(), host="here", process=1, agents=agents)


def test_the_agent_page_shows_versions_and_their_changes(admin: Client) -> None:
    first = released(version(tools=[]))
    second = released(version(instructions="Greet.\nBe brief.", tools=[], subagents=[]))
    _worker(greeter=second)
    page = shows(admin, "/agents/greeter/", "<del>Be kind.</del>", "<ins>Be brief.</ins>")
    in_order(page, second[:19], first[:19])
    assert [page.count(words) for words in (">active<", ">no worker<", "needs approval")] == [1] * 3


def test_instructions_are_shown_to_readers_of_runs(bea: Client, office: Office) -> None:
    for instructions in ("Be kind.", "Be brief."):
        released(replace(version(instructions=instructions, tools=[]), name="hr_onboarding"))
    shows(bea, "/agents/hr_onboarding/", "see its text", hides=["Be brief."])
    office.start()
    shows(bea, "/agents/hr_onboarding/", "<ins>Be brief.</ins>")


# A difference


def _difference(before: Any, after: Any) -> VersionDifference:
    (found,) = list_differences(
        [AgentChange(part="instructions", before=before, after=after, asks=True)]
    )
    return found


def test_a_difference_is_by_line_with_context_and_cut_when_long() -> None:
    before = "\n".join(f"line {n}" for n in range(20))
    found = _difference(before, before.replace("line 10\n", "another\n"))
    assert (found.word, found.cut) == ("changed", False)
    changed = [(line.kind, line.text) for line in found.lines if line.kind != "same"]
    assert changed == [("gap", ""), ("was", "line 10"), ("is", "another")]
    assert sum(line.kind == "same" for line in found.lines) == 6
    of_json = _difference({"a": 1}, {"a": 2}).lines
    assert [line.text for line in of_json if line.kind == "is"] == ['  "a": 2']
    assert (_difference(None, {"a": 1}).word, _difference("x", None).word) == ("added", "removed")
    long = _difference(None, "line\n" * 1000)
    assert (len(long.lines), long.cut) == (MAX_LINES, True)
    harmless = AgentChange(part="tool wave", before=None, after={}, asks=False)
    both = list_differences([harmless, AgentChange(part="model", before="a", after="b", asks=True)])
    assert [one.part for one in both] == ["model", "tool wave"]


# A run


def test_a_run_without_a_worker_says_so(
    suspended: UUID, ada: Client, admin: Client, published: None
) -> None:
    note, none = "No worker can continue this run", "<h2>No worker is alive</h2>"
    shows(ada, suspended, f"{none}<p>Nothing of this run is lost", "Tell an admin.", hides=[note])
    shows(admin, suspended, none, "Start one;", hides=[note])
    Run.objects.update(status="quarantined")
    shows(ada, suspended, hides=[none])
    Run.objects.update(status="suspended")
    _worker(hr_onboarding="sha256:hr_onboarding", account_agent="sha256:account_agent")
    shows(ada, suspended, hides=[note, none])
    WorkerProcess.objects.all().delete()
    _worker(hr_onboarding="sha256:hr_onboarding")
    shows(ada, suspended, f"{note}</h2><p><bdi>Account agent</bdi>:")
    for path in (f"/api/v1/runs/{suspended}", "/api/v1/runs"):
        assert "no live worker has account_agent, so" in ada.get(path).content.decode()
    old = released(replace(version(tools=[], subagents=[]), name="account_agent"))
    new = released(replace(version(tools=[]), name="account_agent"))
    for entry in JournalEntry.objects.filter(run_id=suspended):
        text = decode_stored_text(body(pk=entry.pk)).replace("sha256:account_agent", new)
        JournalEntry.objects.filter(pk=entry.pk).update(body=text)
    _worker(hr_onboarding="sha256:hr_onboarding", account_agent=old)
    shows(ada, suspended, "<bdi>Account agent</bdi>: no live worker")
    _worker(account_agent=new)
    shows(ada, suspended, hides=[note])


# The version gate


def test_a_run_is_continued_at_a_version_gate(bea: Client, suspended: UUID, office: Office) -> None:
    old, new = "Set up.\nAsk first.", "Set up."
    fingerprint = office.effects.agent("account_agent").fingerprint
    office.effects.released["account_agent"] = "sha256:newer"
    agent = office.effects.agent("account_agent")
    change = AgentChange(part="instructions", before=old, after=new, asks=True)
    found = VersionChange(agent=agent, changes=(change,))
    office.effects.changes["account_agent", fingerprint] = found
    office.approve(suspended)
    approval = Approval.objects.get(run=suspended, kind=GateKind.VERSION)
    why = "account_agent is another version than when it began: instructions"
    shows(bea, approval, why, "<del>Ask first.</del>", "Continue")
    shows(bea, "/inbox/", "instructions")
    shows(bea, suspended, "changed: waits for a person to continue it")
    assert send(bea, approval, "continue").status_code == 302
    assert office.advance(suspended).status == "completed"
    shows(bea, suspended, "continued under another version")
    words = ("another version of", "<del>Ask first.</del>")
    shows(bea, f"/runs/{suspended}/?tab=transcript", *words)


def test_the_agent_page_says_how_its_last_runs_went(
    bea: Client, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    released(replace(version(instructions="Be <kind>.", tools=[]), name="hr_onboarding"))
    page = shows(bea, "/agents/hr_onboarding/", "Model", hides=["Be &lt;kind&gt;.", "Success rate"])
    has(page, "people who may read a run of this agent, see them")
    done = [office.start() for _ in range(3)]
    office.approve(done[0])
    for run in done[1:]:
        office.deny(run, "Not now.")
    office.failed()
    began = timezone.now()
    for run, minutes in zip(done, (1, 2, 30), strict=True):
        lasted = began + timedelta(minutes=minutes)
        Run.objects.filter(id=run).update(created_at=began, ended_at=lasted)
    found = run_figures.read_agent_figures(Q(), "hr_onboarding")
    assert (found.runs, found.succeeded, found.failed, found.success) == (4, 3, 1, 75)
    assert (found.median, found.p95) == (timedelta(minutes=2), timedelta(minutes=30))
    assert (found.approved, found.denied, found.approval) == (2, 2, 50)
    shown = ("Be &lt;kind&gt;.", "<dd>75 %</dd>", "<dd>30 min 00 s</dd>", "<dd>50 %</dd>")
    with queries_at_most(13):
        shows(bea, "/agents/hr_onboarding/", *shown)
    monkeypatch.setattr(run_figures, "LAST", 1)
    assert run_figures.read_agent_figures(Q(), "hr_onboarding").success == 0
    nothing = run_figures.read_agent_figures(Q(pk__in=[]), "hr_onboarding")
    assert (nothing.success, nothing.p95, nothing.approval) == (None, None, None)


# Titles


def test_titles_stand_beside_names(ada: Client, suspended: UUID) -> None:
    _publish("hr_onboarding")
    shows(ada, "/agents/hr_onboarding/", "<h1><bdi>Hr onboarding</bdi>", ">hr_onboarding</bdi>")
    PublishedAgent.objects.update(title="New <colleague>")
    shows(ada, "/agents/hr_onboarding/", "<h1><bdi>Hr onboarding</bdi>")  # for half a minute
    forget_titles()
    for path in ("/agents/", "/agents/hr_onboarding/", "/agents/hr_onboarding/start/", suspended):
        shows(ada, path, "New &lt;colleague&gt;</bdi>", ">hr_onboarding</bdi>")
    shows(ada, "/agents/?q=new+colleague", "New &lt;colleague&gt;</bdi>")


def test_requests_name_agents_by_their_titles(bea: Client, office: Office) -> None:
    _publish("hr_onboarding", title="New <colleague>")
    run = office.start()
    path = (
        '<bdi title="hr_onboarding">New &lt;colleague&gt;</bdi>',
        '<bdi title="account_agent">Account agent</bdi>',
        '<bdi title="set_privileges">Set privileges</bdi>',
    )
    in_order(shows(bea, "/inbox/"), *path)
    in_order(shows(bea, office.request(run)), *path)
    in_order(shows(bea, office.held()), path[0])
    office.approve(run)
    in_order(shows(bea, "/decisions/"), *path)


def test_agents_that_others_call_are_marked_and_folded(ada: Client, joiner: PublishedAgent) -> None:
    _publish("account_agent", subagents=["account_agent"])
    shows(ada, "/agents/account_agent/", "sub-agent", 'called by <a href="/agents/joiner/"')
    shows(ada, "/agents/joiner/", hides=["called by"])
    page = shows(ada, "/schedules/new/", '<option value="joiner">Joiner</option>')
    in_order(page, ">Joiner<", "<optgroup", ">Account agent<")
