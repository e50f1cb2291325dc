"""The page of an approval: the call, the comparison with the last similar one, and its state after a decision."""

import re
from typing import Any

import pytest
from django.test import Client
from pytest_django import Settings

from approvals.models import Approval
from approvals.rules.policy import Group
from approvals.web.request import request_page
from runtime.control.interventions import pause
from runtime.control.kill_switches import engage
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.effects import ToolFailure, ToolResult, Unknown
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, in_order, queries_at_most, send, shows, text
from tests.support.seeds import Cast


def test_the_page_shows_the_call_and_its_context(bea: Client, asked: Approval) -> None:
    approve = f'form="deny" formaction="/a/{asked.id}/approve/" formnovalidate'
    # The call stands alone, the run goes on, and there are no cards without content.
    hides = ["Requested together", "is stopped", "Other pending calls", 'id="why"']
    default = "not given; the tool's default is"
    page = shows(bea, asked, default, "<details", approve, hides=hides)
    in_order(page, ">Hr onboarding</bdi>", ">Account agent</bdi>")
    in_order(page, "/deny/", 'id="reason"', "/approve/")
    assert page.count(asked.approval_digest) == 1  # one form for every verdict
    _, _, around = page.partition("Already done")
    done = ("<bdi>Create account</bdi>", "<bdi>username</bdi>", ">newhire<", ">Result<")
    in_order(around, *done, "Planned steps", "Create the account")
    order = ("odd", "what", "where", "given", "around", "conversation", "facts", "similar")
    in_order(page, *(f'id="{part}"' for part in order))
    has(page.partition('id="given"')[2].partition('id="facts"')[0], ">New Hire<")
    before, _, conversation = page.partition('id="conversation"')
    after = conversation.partition('id="people"')[2]
    for said_once in ("Medium risk", "expires <time", "<bdi>ada</bdi>", "Requested</dt>"):
        assert (before + after).count(said_once) == 1, said_once
    Run.objects.filter(id=asked.run_id).update(status="quarantined", reason="not its own")
    shows(bea, asked, "The run of this call is stopped")


def test_where_in_the_run_has_the_calls_on_the_path_alone(
    bea: Client, office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    created = ask(("create_account", {"username": "newhire"}))
    args = {"username": "newhire", "security_level": 3}
    office.effects.agents = {
        "account_agent": turns(created, say("made")),
        "hr_onboarding": turns(ask(("account_agent", NEWCOMER)), ask(("set_privileges", args))),
    }
    asked = office.request(office.start())
    _, _, path = text(bea, asked).partition('<ol class="strip">')
    names = re.findall(r'<span class="raw">(.*?)</span>', path.partition("</ol>")[0])
    assert names == ["Account agent", "Set privileges"]
    # The page of a long run has the nearest steps.
    monkeypatch.setattr(request_page, "MAX_STEPS", 1)
    _, _, around = text(bea, asked).partition("Already done")
    done, _, conversation = around.partition('id="conversation"')
    has(done, "1 more calls", "<bdi>Account agent</bdi>", hides=["Create account"])
    has(conversation, "more messages", "Set privileges", hides=["Create account"])


def test_shows_every_argument_whole_with_its_label(bea: Client, office: Office) -> None:
    long = "word " * 2_000 + "end"
    run = office.start(args={"username": "newhire", "security_level": 5, "note": long})
    words = ("Set the privileges of newhire to 5", "<bdi>security_level</bdi>", long, "Medium risk")
    shows(bea, office.request(run), *words)
    hostile = {"username": "<script>alert(1)</script>\u202egrace\u200b", "security_level": 1}
    approval = office.request(office.start(args=hostile))
    shows(bea, approval, "&lt;script&gt;", "⟦U+202E⟧", hides=["<script>", "\u202e", "\u200b"])


def test_calls_of_one_turn_are_shown_together(bea: Client, office: Office) -> None:
    office.approve(office.start())
    office.ask_twice()
    first, second = Approval.objects.filter(run=office.start()).order_by("call")
    with queries_at_most(15):
        page = shows(bea, first, "Compared with")
    other = "Set the privileges of another to 2"
    together = page[page.index("Requested together") : page.index('id="people"')]
    has(together, other, "Waiting for a decision")
    assert page.count(f'class="t" href="/a/{second.id}/"') == 1
    has(page, hides=["Other pending calls"])
    send(bea, first, "approve")
    page = text(bea, second)
    has(page[page.index("Requested together") :], "Approved")


def test_beside_the_list_the_next_request_comes_alone_with_the_toast(
    bea: Client, asked: Approval, office: Office
) -> None:
    office.start(args={"username": "next", "security_level": 1})
    second = Approval.objects.exclude(id=asked.id).get()
    send(bea, asked, "approve")
    text(bea, second, live=True)  # an open page asks for its news, which is no place for a toast
    headers = {"HX-Request": "true", "HX-Target": "panel"}
    page = str(bea.get(f"/a/{second.id}/", headers=headers).content.decode())
    has(page, "Set the privileges of next to 1", "Approved: Set the privileges", hides=["<nav"])
    shows(bea, second, hides=['class="toast"'])


FIRST = "First of its kind: "


def _card(client: Client, approval: Approval) -> str:
    found = re.search(r'aria-labelledby="similar".*?</section>', text(client, approval), re.DOTALL)
    assert found
    return found[0]


def _start(office: Office, **args: Any) -> Approval:
    return office.request(office.start(args={"username": "newhire", "security_level": 3, **args}))


def test_the_card_shows_changes_and_approver(bea: Client, office: Office, asked: Approval) -> None:
    has(_card(bea, asked), FIRST)
    office.approve(asked.run_id)
    has(_card(bea, _start(office)), "every argument is the same")
    changes = ("<bdi>security_level</bdi>", "<del>3</del>", "<ins>5</ins>", "1 unchanged")
    has(_card(bea, _start(office, security_level=5)), "<bdi>bea</bdi> approved", *changes)
    spaced = _card(bea, _start(office, username="newhire "))
    has(spaced, "It ends with 1 space, before with no spaces.")
    odd = _start(office, note="p\u0430ypal")
    shown = text(bea, odd).partition('class="args"')[2].partition("</dl>")[0]
    for part in (shown, _card(bea, odd)):
        has(part, "mixes Latin and Cyrillic letters")


def test_only_earlier_approvals_are_compared(bea: Client, office: Office, asked: Approval) -> None:
    send(bea, asked, "deny", reason="not yet")
    office.advance(asked.run_id)
    first = _start(office)
    has(_card(bea, first), FIRST)
    office.approve(first.run_id)
    later = _start(office, security_level=5)
    office.approve(later.run_id)
    has(_card(bea, first), FIRST)  # nothing had been approved before it
    has(_card(bea, later), "<ins>5</ins>")
    ways = Approval.objects.filter(pk__in=[first.pk, later.pk])
    ways.update(path=["another_agent", "set_privileges"])
    has(_card(bea, _start(office)), FIRST)


@pytest.mark.parametrize("may_read", [True, False])
def test_similar_requests_respect_the_right_to_read(
    office: Office, ada: Client, cast: Cast, may_read: bool
) -> None:
    """Ada, no longer a reviewer, reads her own request, and Bea's approvals in her own runs only."""
    if not may_read:
        cast.ada.groups.remove(cast.ada.groups.get(name=Group.REVIEWERS))
    office.approve(office.start(requester="ada" if may_read else "another"))
    card = _card(ada, _start(office, username="x"))
    assert ("<del>newhire</del>" in card) is may_read
    assert (FIRST in card) is not may_read


def _text(client: Client, approval: Approval) -> str:
    return " ".join(text(client, approval).split())


def _box(client: Client, approval: Approval) -> str:
    """The box of the verdict, with its class."""
    box = r'<div class="note[^>]*role="status">(?:(?!</section>).)*?<div class="column">'
    found = re.search(box, _text(client, approval))
    assert found
    return found[0]


@pytest.mark.parametrize("paused", [False, "asked", "applied"])
def test_it_says_when_an_approved_call_starts(
    bea: Client, office: Office, paused: bool | str
) -> None:
    approval = office.request(office.start())
    if paused:
        pause(run=approval.run_id, reason="", actor=Actor(person="ada"))
    if paused == "applied":
        office.advance(approval.run_id)
    send(bea, approval, "approve", reason="Her lead agreed.")
    when = "when the run is resumed"
    effect = f"It starts {when}." if paused else "A worker starts it next."
    status = f"approved, starts {when}" if paused else "starting…"
    page = has(_text(bea, approval), f"Approved. {effect}", f"Status: {status}")
    has(page, "The call may start once")
    has(_box(bea, approval), "Her lead agreed.", hides=["waiting for a person"])


def test_a_decision_reads_no_journal(
    bea: Client, asked: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    monkeypatch.setattr("runtime.reads.journal.decode_entry", read.append)
    assert send(bea, asked, "approve").status_code == 302
    assert read == []


def test_the_page_names_the_undo_window(bea: Client, asked: Approval, settings: Settings) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 600
    send(bea, asked, "approve")
    page = has(_text(bea, asked), "Status: approved, takes effect <time", ">Undo<")
    assert re.search(r"Approved\. Takes effect <time [^>]*>in \d+ s</time>\.", page)
    assert re.search(r"Approved by you\. Takes effect <time [^>]*>in \d+ min</time>\.", page)
    engage(agent="", reason="because", actor=None)
    has(_box(bea, asked), "approved, starts when every agent is resumed")


def test_the_page_shows_the_outcome_of_each_call(bea: Client, office: Office) -> None:
    said_of: dict[str, ToolFailure | Unknown] = {
        "a": ToolFailure(error="no such <person>"),
        "b": Unknown(error="cut off"),
    }
    office.effects.tools["set_privileges"] = FakeTool(
        gated=True, body=lambda asked: said_of.get(asked.args["username"], ToolResult(value="set"))
    )
    boxes = []
    for name in ("a", "b", "c"):
        run = office.start(args={"username": name, "security_level": 1})
        approval = office.request(run)
        send(bea, approval, "approve")
        office.advance(run)
        boxes.append(_box(bea, approval))
        has(_text(bea, approval), hides=["The call may start once"])
    failed, lost, done = boxes
    has(failed, "Status: failed", "no such &lt;person&gt;")
    has(lost, f'href="/a/{Approval.objects.get(kind="in_doubt").id}/"')
    has(done, "Status: done in ", ">Result<")
