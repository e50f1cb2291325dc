"""Agent versions on pages: the agent page, a run continued under another version, and a run without a worker."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

from django.db import connection
from django.test import Client

from agents.catalogue.published import publish
from agents.models import AgentVersion
from agents.registry import Registry
from approvals.models import Request
from runtime.core.documents.compression import plain_text
from runtime.core.enums import GateKind
from runtime.core.events import Change
from runtime.models import JournalEntry, Worker
from runtime.ports.agents import VersionChange
from runtime.queries.version_diff import MAX_LINES, Difference, differences
from tests.support.cast import Cast
from tests.support.entries import body
from tests.support.office import Office
from tests.support.pages import in_order, send, shows
from tests.support.specs import version


def _publish(spec: Any) -> str:
    """A version of the agent greeter, published after all others."""
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE agents_agentversion SET published_at = published_at - interval '1 day'"
        )
    publish(Registry(agents={spec.name: spec}))
    return str(spec.fingerprint)


def _worker(**agents: str) -> None:
    Worker.objects.create(id=uuid4(), host="here", process=1, agents=agents)


# The page of an agent


def test_the_agent_page_shows_versions_and_their_changes(admin: Client) -> None:
    first = _publish(version(tools=[]))
    second = _publish(version(instructions="Greet.\nBe brief.", tools=[]))
    _worker(greeter=second)
    page = shows(admin, "/agents/greeter/", "<del>Be kind.</del>", "<ins>Be brief.</ins>")
    in_order(page, second[:19], first[:19])
    assert [page.count(words) for words in (">active<", ">no worker<", "needs approval")] == [1] * 3


def test_instructions_are_shown_to_readers_of_runs(bea: Client, office: Office) -> None:
    for instructions in ("Be kind.", "Be brief."):
        _publish(replace(version(instructions=instructions, tools=[]), name="hr_onboarding"))
    shows(bea, "/agents/hr_onboarding/", "see its text", hides=["Be brief."])
    office.start()
    shows(bea, "/agents/hr_onboarding/", "<ins>Be brief.</ins>")


def test_a_version_that_was_changed_in_the_database_is_not_shown(bea: Client, cast: Cast) -> None:
    fingerprint = _publish(version(tools=[]))
    AgentVersion.objects.update(facts=json.dumps({"name": "greeter", "instructions": "Obey."}))
    shows(bea, "/agents/greeter/", fingerprint, hides=["Obey.", 'id="versions"'])


# A difference


def _difference(before: Any, after: Any) -> Difference:
    (found,) = differences([Change(part="instructions", before=before, after=after, asks=True)])
    return found


def test_a_difference_is_by_line_with_context_and_cut_when_long() -> None:
    before = "\n".join(f"line {n}" for n in range(20))
    found = _difference(before, before.replace("line 10\n", "another\n"))
    assert (found.word, found.cut) == ("changed", False)
    assert [(line.kind, line.text) for line in found.lines if line.kind != "same"] == [
        ("gap", ""),
        ("was", "line 10"),
        ("is", "another"),
    ]
    assert sum(line.kind == "same" for line in found.lines) == 6
    of_json = _difference({"a": 1}, {"a": 2}).lines
    assert [line.text for line in of_json if line.kind == "is"] == ['  "a": 2']
    assert (_difference(None, {"a": 1}).word, _difference("x", None).word) == ("added", "removed")
    long = _difference(None, "line\n" * 1000)
    assert (len(long.lines), long.cut) == (MAX_LINES, True)
    harmless = Change(part="tool wave", before=None, after={}, asks=False)
    both = differences([harmless, Change(part="model", before="a", after="b", asks=True)])
    assert [one.part for one in both] == ["model", "tool wave"]


# A run


def _goes_on(office: Office, run: UUID, *changes: Change) -> None:
    """Bea approves, and the worker then has another version of account_agent."""
    before = office.effects.agent("account_agent").fingerprint
    office.effects.released["account_agent"] = "sha256:newer"
    agent = office.effects.agent("account_agent")
    office.effects.changes["account_agent", before] = VersionChange(agent=agent, changes=changes)
    office.approve(run)


def test_a_run_shows_its_version_change_and_the_difference(
    office: Office, suspended: UUID, ada: Client
) -> None:
    part = "tool create_account: description"
    _goes_on(office, suspended, Change(part=part, before="Old.", after="New.", asks=False))
    shows(ada, suspended, "continued under another version")
    shows(ada, f"/runs/{suspended}/?tab=transcript", "another version of", "<del>Old.</del>")


def test_a_run_that_no_worker_can_continue_says_so(
    suspended: UUID, ada: Client, published: None
) -> None:
    note = "No worker can continue this run"
    _worker(hr_onboarding="sha256:hr_onboarding", account_agent="sha256:account_agent")
    shows(ada, suspended, hides=[note])
    Worker.objects.all().delete()
    _worker(hr_onboarding="sha256:hr_onboarding")
    shows(ada, suspended, f"{note}</h2><p><bdi>account_agent</bdi>:")
    old = _publish(replace(version(tools=[], subagents=[]), name="account_agent"))
    new = _publish(replace(version(tools=[]), name="account_agent"))
    for entry in JournalEntry.objects.filter(run_id=suspended):
        text = plain_text(body(pk=entry.pk)).replace("sha256:account_agent", new)
        JournalEntry.objects.filter(pk=entry.pk).update(body=text)
    _worker(hr_onboarding="sha256:hr_onboarding", account_agent=old)
    shows(ada, suspended, "<bdi>account_agent</bdi>: no live worker")
    _worker(account_agent=new)
    shows(ada, suspended, hides=[note])


# The version gate


def test_a_run_continues_from_a_version_gate_after_a_decision(
    bea: Client, suspended: UUID, office: Office
) -> None:
    after, before = "Set up.", "Set up.\nAsk first."
    _goes_on(office, suspended, Change(part="instructions", before=before, after=after, asks=True))
    asked = Request.objects.get(run=suspended, kind=GateKind.VERSION)
    why = "account_agent is another version than when it began: instructions"
    shows(bea, asked, why, "<del>Ask first.</del>", "Continue")
    shows(bea, "/inbox/", "instructions")
    shows(bea, suspended, "changed: waits for a person to continue it")
    assert send(bea, asked, "continue").status_code == 302
    assert office.advance(suspended).status == "completed"
    shows(bea, suspended, "continued under another version")
