"""Agent versions on pages: the agent page, a run continued under another version, and a run without a worker."""

import json
from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest
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
from tests.agents.test_versions import version
from tests.support.cast import Cast
from tests.support.entries import body
from tests.support.office import Office

HOSTILE = "<script>alert(1)</script>\u202e"


def _text(client: Client, path: str) -> str:
    response = client.get(path)
    assert response.status_code == 200
    return response.content.decode()


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
    _publish(version(tools=[]))
    second = _publish(version(instructions="Greet.\nBe brief.", tools=[]))
    _worker(greeter=second)
    page = _text(admin, "/agents/greeter/")
    assert page.index(second[:19]) < page.index(version(tools=[]).fingerprint[:19])
    assert "<del>Be kind.</del>" in page
    assert "<ins>Be brief.</ins>" in page
    assert page.count(">active<") == 1
    assert page.count(">no worker<") == 1
    assert page.count("needs approval") == 1


def test_instructions_are_shown_to_readers_of_runs(bea: Client, office: Office) -> None:
    _publish(replace(version(tools=[]), name="hr_onboarding"))
    _publish(replace(version(instructions="Be brief.", tools=[]), name="hr_onboarding"))
    page = _text(bea, "/agents/hr_onboarding/")
    assert "see its text" in page
    assert "Be brief." not in page
    office.start()
    assert "<ins>Be brief.</ins>" in _text(bea, "/agents/hr_onboarding/")


def test_authors_texts_of_a_version_are_escaped(admin: Client) -> None:
    _publish(version(tools=[]))
    _publish(version(instructions=HOSTILE, tools=[]))
    page = _text(admin, "/agents/greeter/")
    assert "<script>alert" not in page
    assert "\u202e" not in page


def test_a_version_that_was_changed_in_the_database_is_not_shown(bea: Client, cast: Cast) -> None:
    fingerprint = _publish(version(tools=[]))
    AgentVersion.objects.update(facts=json.dumps({"name": "greeter", "instructions": "Obey."}))
    page = _text(bea, "/agents/greeter/")
    assert "Obey." not in page
    assert 'id="versions"' not in page
    assert fingerprint in page


# A difference


def _difference(before: Any, after: Any) -> Difference:
    (found,) = differences([Change(part="instructions", before=before, after=after, asks=True)])
    return found


def test_a_difference_shows_changed_lines_and_context() -> None:
    before = "\n".join(f"line {n}" for n in range(20))
    found = _difference(before, before.replace("line 10\n", "another\n"))
    assert found.word == "changed"
    assert [(line.kind, line.text) for line in found.lines if line.kind != "same"] == [
        ("gap", ""),
        ("was", "line 10"),
        ("is", "another"),
    ]
    assert sum(line.kind == "same" for line in found.lines) == 6
    assert not found.cut


def test_a_json_difference_is_by_line_and_cut_when_long() -> None:
    assert [line.text for line in _difference({"a": 1}, {"a": 2}).lines if line.kind == "is"] == [
        '  "a": 2'
    ]
    assert (_difference(None, {"a": 1}).word, _difference("x", None).word) == ("added", "removed")
    long = _difference(None, "line\n" * 1000)
    assert (len(long.lines), long.cut) == (MAX_LINES, True)


def test_changes_that_need_approval_come_first() -> None:
    harmless = Change(part="tool wave", before=None, after={}, asks=False)
    found = differences([harmless, Change(part="model", before="a", after="b", asks=True)])
    assert [one.part for one in found] == ["model", "tool wave"]


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
    change = Change(
        part="tool create_account: description", before="Old.", after="New.", asks=False
    )
    _goes_on(office, suspended, change)
    assert "continued under another version" in _text(ada, f"/runs/{suspended}/")
    page = _text(ada, f"/runs/{suspended}/?tab=transcript")
    assert "another version of" in page
    assert "<del>Old.</del>" in page


@pytest.mark.usefixtures("published")
def test_a_run_whose_agent_no_worker_has_says_so(suspended: UUID, ada: Client) -> None:
    note = "No worker can continue this run"
    _worker(hr_onboarding="sha256:hr_onboarding", account_agent="sha256:account_agent")
    assert note not in _text(ada, f"/runs/{suspended}/")
    Worker.objects.all().delete()
    _worker(hr_onboarding="sha256:hr_onboarding")
    page = _text(ada, f"/runs/{suspended}/")
    assert f"{note}</h2><p><bdi>account_agent</bdi>:" in page


def test_a_run_newer_than_all_workers_says_so(suspended: UUID, ada: Client) -> None:
    old = _publish(replace(version(tools=[], subagents=[]), name="account_agent"))
    new = _publish(replace(version(tools=[]), name="account_agent"))
    for entry in JournalEntry.objects.filter(run_id=suspended):
        text = plain_text(body(pk=entry.pk)).replace("sha256:account_agent", new)
        JournalEntry.objects.filter(pk=entry.pk).update(body=text)
    _worker(hr_onboarding="sha256:hr_onboarding", account_agent=old)
    assert "<bdi>account_agent</bdi>: no live worker" in _text(ada, f"/runs/{suspended}/")
    _worker(account_agent=new)
    assert "No worker can go on" not in _text(ada, f"/runs/{suspended}/")


# The version gate

INSTRUCTIONS = Change(part="instructions", before="Set up.\nAsk first.", after="Set up.", asks=True)


@pytest.fixture
def asked(office: Office, suspended: UUID) -> Request:
    """The version gate of a run of Ada's whose account agent has changed."""
    _goes_on(office, suspended, INSTRUCTIONS)
    return Request.objects.get(run=suspended, kind=GateKind.VERSION)


def test_the_page_of_a_version_gate_shows_the_difference(bea: Client, asked: Request) -> None:
    page = _text(bea, f"/a/{asked.id}/")
    assert "account_agent is another version than when it began: instructions" in page
    assert "<del>Ask first.</del>" in page
    assert "Continue" in page
    assert "instructions" in _text(bea, "/inbox/")
    assert "changed: waits for a person to continue it" in _text(bea, f"/runs/{asked.run_id}/")


def test_a_run_continues_from_a_version_gate_after_a_decision(
    bea: Client, asked: Request, office: Office
) -> None:
    sent = bea.post(f"/a/{asked.id}/continue/", {"digest": asked.request_digest})
    assert sent.status_code == 302
    assert office.advance(asked.run_id).status == "completed"
    assert "continued under another version" in _text(bea, f"/runs/{asked.run_id}/")


def test_authors_texts_at_a_version_gate_are_escaped(
    bea: Client, office: Office, suspended: UUID
) -> None:
    _goes_on(office, suspended, Change(part=HOSTILE, before=HOSTILE, after={HOSTILE: 1}, asks=True))
    asked = Request.objects.get(run=suspended, kind=GateKind.VERSION)
    for path in (f"/a/{asked.id}/", f"/runs/{suspended}/", "/inbox/"):
        page = _text(bea, path)
        assert "<script>alert" not in page
        assert "\u202e" not in page
