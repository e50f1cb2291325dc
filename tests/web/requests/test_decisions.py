"""Decisions on the page and their undo: forms, refusals, results, expiry, and forged rows."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client, override_settings
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval, AuditEntry
from approvals.people.accounts import create_person
from approvals.port.adapter import ApprovalService
from approvals.rules.policy import Group
from approvals.signed import audit
from runtime import broker
from runtime.keyring import sealing
from runtime.models import Gate, Run, Signal
from runtime.reads.transcript import read_transcript
from runtime.store import pool
from runtime.store.tables import signals
from tests.support import seeds
from tests.support.api_client import Caller, code_of
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, log_in, send, shows, text_of
from tests.support.seeds import PASSWORD

REAL_HINT = broker.dispatch


def test_a_requester_is_shown_no_way_to_decide(ada: Client, office: Office) -> None:
    doubt = office.in_doubt_request(office.in_doubt())
    settling = ("settle/give-up", "settle/happened", "settle/run-again")
    for approval, ways in (
        (office.request(office.start()), ("approve", "deny", "answer")),
        (doubt, settling),
        (office.held(), ("continue", "stop")),
    ):
        shows(ada, approval, "You may read this, but not", hides=[f"/{way}/" for way in ways])


def test_another_person_decides_a_request_once(ada: Client, bea: Client, asked: Approval) -> None:
    page = text_of(send(ada, asked, "approve"), 403)
    has(page, "started this run, so another person must decide")
    for way in ("continue", "stop", "settle/run-again"):
        assert send(bea, asked, way, reason="x").status_code in (404, 422)
    asked.refresh_from_db()
    assert asked.status == "pending"
    for _ in range(2):  # two clicks
        answer = send(bea, asked, "approve")
        assert (answer.status_code, answer["Location"]) == (302, f"/a/{asked.id}/")
    late = send(bea, asked, "deny", reason="my own words")
    has(text_of(late, 409), "You decided this already")
    dan = log_in(create_person(username="dan", password=PASSWORD, groups=[Group.REVIEWERS]))
    page = text_of(send(dan, asked, "deny", reason="my own words"), 409)
    has(page, "<bdi>bea</bdi> was first", "my own words")


def test_a_denial_says_what_follows_and_when_it_ends_the_run(bea: Client, office: Office) -> None:
    levels = [{"username": "newhire", "security_level": level} for level in (3, 4, 5)]
    office.effects.agents["account_agent"] = turns(*(ask(("set_privileges", a)) for a in levels))
    run = office.start()
    for count, words in enumerate(
        ("in this run.</p>", "was denied in 1 turn of this run", "If you deny this call too")
    ):
        approval = Approval.objects.get(run=run, status="pending")
        page = shows(bea, approval, "may not ask for the same call again", words)
        assert ("Remark (denying ends the run)" in page) is (count == 2)
        send(bea, approval, "deny", reason=f"level {count} is too high")
        office.advance(run)
    failed = Run.objects.get(id=run)
    assert (failed.status, failed.reason) == (
        "failed",
        "set_privileges was denied in 3 turns, last because: level 2 is too high",
    )
    shows(bea, approval, "The run ended", hides=["receives the denial"])


def test_denials_of_an_item_of_a_list_end_the_item_alone(bea: Client, office: Office) -> None:
    office.effects.lists.add("hr_onboarding")
    levels = [{"username": "newhire", "security_level": level} for level in (3, 4, 5)]
    office.effects.agents["account_agent"] = turns(*(ask(("set_privileges", a)) for a in levels))
    run = office.start()
    for _ in levels:
        approval = Approval.objects.get(run=run, status="pending")
        shows(bea, approval, hides=["ends the run", "was denied in", "the run ends"])
        send(bea, approval, "deny", reason="too high")
        office.advance(run)
    assert Run.objects.get(id=run).status == "completed"
    shows(bea, approval, "receives the denial", hides=["The run ended"])
    has(text_of(bea.get(f"/runs/{run}/?tab=transcript")), "set_privileges was denied in 3 turns")


@pytest.mark.parametrize("is_question", [False, True])
def test_denials_of_the_run_and_of_its_items_are_counted_apart(
    bea: Client, office: Office, is_question: bool
) -> None:
    office.effects.lists.add("hr_onboarding")
    office.effects.tools["set_privileges"] = FakeTool(gated=True, question=is_question)
    first, second, third, of_item = (
        ("set_privileges", {"username": "newhire", "security_level": n, "question": ""})
        for n in range(1, 5)
    )
    office.effects.agents["account_agent"] = turns(ask(of_item), say("No."))
    office.effects.agents["hr_onboarding"] = turns(
        ask(first), ask(second), ask(third, ("account_agent", NEWCOMER))
    )
    run, ends = office.start(), "(declining ends" if is_question else "(denying ends"
    for _ in range(2):
        send(bea, Approval.objects.get(run=run, status="pending"), "deny", reason="no")
        office.advance(run)
    root, approval = Approval.objects.filter(run=run, status="pending").order_by("frame")
    shows(bea, root, ends)
    shows(bea, approval, hides=[ends, "was denied in"])
    send(bea, approval, "deny", reason="no")
    shows(bea, root, ends)


def test_denials_that_are_not_in_effect_yet_are_counted(bea: Client, office: Office) -> None:
    levels = [{"username": "newhire", "security_level": level} for level in (3, 4, 5)]
    asks = ask(*(("set_privileges", args) for args in levels))
    office.effects.agents["account_agent"] = turns(asks, say("No."))
    first, second, _ = Approval.objects.filter(run=office.start()).order_by("id")
    send(bea, first, "deny", reason="too high")
    shows(bea, second, "was denied in 1 turn of this run", hides=["Remark (denying ends"])


def test_a_denial_promises_nothing_of_a_call_with_a_secret(bea: Client, office: Office) -> None:
    sealed = sealing.seal("swordfish", sealing.encode_location("set_privileges", "args", "note"))
    args = {"username": "newhire", "security_level": 3, "note": sealed}
    office.effects.agents["account_agent"] = turns(ask(("set_privileges", args)), say("No."))
    approval = office.request(office.start())
    page = shows(bea, approval, sealing.REDACTED, "If you deny it")
    assert "the same call again" not in page
    send(bea, approval, "deny", reason="no")
    assert "The same call" not in shows(bea, approval, "The call never starts")


def test_the_next_found_request_opens(bea: Client, office: Office, settings: Settings) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    names = ("first", "another", "second")
    runs = [office.start(args={"username": name, "security_level": 1}) for name in names]
    first, other, second = (office.request(run) for run in runs)
    place = "?q=of+second"
    assert f'href="/a/{second.id}/{place}"' in shows(bea, f"/inbox/{place}")
    shows(bea, f"/a/{second.id}/{place}", f'href="/inbox/{place}"', hides=[str(first.id)])
    assert _decided(bea, second, place) == f"/a/{second.id}/{place}"  # there is no other
    assert _decided(bea, first, "") == f"/a/{other.id}/"
    said = "Approved: Set the privileges of first to 1. Takes effect <time"
    shows(bea, other, said, f'href="/a/{first.id}/">View', f'action="/a/{first.id}/undo/"')
    assert _decided(bea, other, "?q=risk:none") == f"/a/{other.id}/"  # no such search


def _decided(person: Client, approval: Approval, place: str) -> str:
    """Approve, and return the page that opens then."""
    form = {"digest": approval.approval_digest}
    return str(person.post(f"/a/{approval.id}/approve/{place}", form)["Location"])


def test_answer_instead_of_a_call(
    bea: Client, ada: Client, office: Office, asked: Approval
) -> None:
    shows(
        bea,
        asked,
        "Give the result yourself, without running it",
        "any text or JSON value is accepted",
    )
    has(text_of(send(bea, asked, "answer"), 422), "Not decided: result is required to answer")
    refused = text_of(send(bea, asked, "answer", result="[1,", reason="By hand."), 422)
    has(refused, "Not decided: result is not JSON", "[1,", "By hand.", "<details open")
    send(bea, asked, "answer", result='{"level": 2}', reason="By hand.")
    shows(bea, asked, "Answered instead by <bdi>bea</bdi>", "The call never starts", "Not measured")
    assert office.advance(asked.run_id).status == "completed"
    (heard,) = office.effects.models[-3].messages[-1]["results"]
    assert (heard["content"], heard["reported_by"], heard["answered"]) == (
        {"level": 2},
        "bea",
        True,
    )
    assert "set_privileges" not in [call.tool for call in office.effects.calls]
    record = read_transcript(asked.run_id).call(asked.frame, asked.call)
    assert record is not None
    assert not record.has_side_effects
    shows(bea, asked, "answered by a person", "The result, given by <bdi>bea</bdi>")
    shows(bea, "/decisions/", "Answered instead", "Answered, not made")
    shows(ada, asked.run_id, "answered instead by <bdi>bea</bdi>")


def test_a_refused_decision_says_why_and_keeps_what_was_typed(bea: Client, asked: Approval) -> None:
    has(text_of(send(bea, asked, "deny", reason="   "), 422), "is required to deny")
    long = "because " * 300
    has(text_of(send(bea, asked, "deny", reason=long), 422), long)
    changed = text_of(send(bea, asked, "approve", digest="sha256:another"), 409)
    has(changed, "the request changed while you were reading", asked.approval_digest)
    asked.refresh_from_db()
    assert asked.status == "pending"


def test_a_decision_is_on_disk_first(bea_api: Caller, office: Office, asked: Approval) -> None:
    """No crash after the 200 loses the decision. The test server flushes only if a session asks for it."""
    office.heartbeat.stop()  # it writes all the time
    with _flushing(), connection.cursor() as cursor:
        decide(bea_api, asked)
        cursor.execute("SELECT pg_current_wal_flush_lsn() >= pg_current_wal_insert_lsn()")
        assert cursor.fetchone() == (True,)


@contextmanager
def _flushing() -> Iterator[None]:
    """Make new sessions of Django and of the engine flush their commits."""
    name = connection.settings_dict["NAME"]
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} SET synchronous_commit = on")
    connection.close()
    pool.close()
    yield
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER DATABASE {name} RESET synchronous_commit")
    connection.close()
    pool.close()


# A hold


def test_a_hold_says_why_and_is_continued_or_stopped(bea: Client, office: Office) -> None:
    hold = office.held("stops after every reply")
    why = ("stops after every reply", "Why it stopped", "Nothing new starts")
    shows(bea, hold, *why, "Continue", "Stop the run")
    shows(bea, "/inbox/", why[0])
    state = "stopped: waits for a person to continue it"
    shows(bea, hold.run_id, "The agent is held for review", state)
    shows(bea, "/runs/", "hold")
    send(bea, hold, "continue")
    office.advance(hold.run_id)
    shows(bea, hold, "Continued by <bdi>bea</bdi>", hides=["Nothing new starts"])
    shows(bea, hold.run_id, "continued by")
    other = office.held()
    has(text_of(send(bea, other, "stop"), 422), "the reason is required to stop the run")
    send(bea, other, "stop", reason="It goes in circles.")
    assert office.advance(other.run_id).status == "cancelled"
    shows(bea, other, "The run was stopped by <bdi>bea</bdi>")


# Expiry


@pytest.mark.parametrize("recorded", [False, True])
def test_an_expired_request_says_so_and_refuses_decisions(
    ada: Client,
    bea: Client,
    bea_api: Caller,
    office: Office,
    asked: Approval,
    monkeypatch: pytest.MonkeyPatch,
    recorded: bool,
) -> None:
    assert isinstance(asked.expires_at, datetime)
    left = f'<time datetime="{asked.expires_at.isoformat()}" data-countdown>in 7 d</time>'
    shows(bea, "/inbox/", left)
    shows(bea, asked, left, ": then the call is denied")
    seeds.set_clock(monkeypatch, timezone.now() + timedelta(days=8))
    if recorded:
        ApprovalService().expire(asked.gate)
    why = ("Expired: no person decided in time", "can start the run again")
    shows(bea, asked, *why, hides=["/approve/"])
    page = text_of(send(bea, asked, "deny", reason="my own words"), 410)
    has(page, "Too late: this has expired", "my own words")
    body = {"verdict": "approve", "digest": asked.approval_digest}
    answer = bea_api.post(f"/approvals/{asked.id}/decision", body)
    assert code_of(answer) == (410, "expired")
    shows(bea, "/inbox/", "You're all caught up")
    office.advance(asked.run_id)
    shows(ada, asked.run_id, "expired without a decision")
    shows(ada, f"/runs/{asked.run_id}/?tab=transcript", "decided by <bdi>the deadline</bdi>")


WINDOW = 60.0


def decide(api: Caller, approval: Approval, window: float = WINDOW) -> dict[str, object]:
    body = {"verdict": "approve", "digest": approval.approval_digest, "reason": "Because."}
    with override_settings(SIGNOFF_UNDO_SECONDS=window):
        answer = api.post(f"/approvals/{approval.id}/decision", body)
    assert answer.status_code == 200, answer.content
    said: dict[str, object] = answer.json()
    assert (said["decided_by"], said["reason"]) == ("bea", "Because.")
    return said


@pytest.mark.parametrize("over_api", [False, True])
@pytest.mark.usefixtures("live_broker")
def test_a_decision_opens_no_connection_to_the_broker(
    bea: Client, bea_api: Caller, asked: Approval, over_api: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    users: list[threading.Thread] = []  # of sockets; Postgres' own library uses its own unseen

    def watch(name: str) -> None:
        real = getattr(socket.socket, name)

        def watched(self: socket.socket, *given: Any) -> None:
            users.append(threading.current_thread())
            real(self, *given)

        monkeypatch.setattr(socket.socket, name, watched)

    watch("connect")
    watch("sendall")  # on a connection that another thread has opened
    monkeypatch.setattr(broker, "_thread", None)
    broker._open_broker.cache_clear()
    monkeypatch.setattr(broker, "dispatch", REAL_HINT)
    if over_api:
        decide(bea_api, asked, 0)
    else:
        send(bea, asked, "approve")
    asked.refresh_from_db()
    assert asked.status == "approved"
    assert broker._thread is not None
    broker._thread.flush()
    assert {thread.name for thread in users} - {"notifier"} == {"dispatch"}


def test_a_decision_waits_for_its_window(bea_api: Caller, office: Office, suspended: UUID) -> None:
    approval = office.request(suspended)
    said = decide(bea_api, approval, 0.5)
    assert said["effective_at"] is not None
    signal = Signal.objects.get(run=suspended)
    run = Run.objects.get(id=suspended)
    decided = Approval.objects.get(id=approval.id)
    assert run.due_at == signal.effective_at == decided.effective_at
    assert decided.decided_at is not None
    assert signal.effective_at == decided.decided_at + timedelta(seconds=0.5)
    # Short enough for the worker to stay, which wakes by itself when the decision counts.
    assert office.advance(suspended).status == "completed"
    assert timezone.now() >= signal.effective_at
    assert office.started(suspended) == 1
    answer = bea_api.post(f"/approvals/{approval.id}/undo")
    assert code_of(answer) == (410, "too_late")


def test_an_undone_decision_is_none(bea_api: Caller, office: Office, suspended: UUID) -> None:
    approval = office.request(suspended)
    decide(bea_api, approval)
    effective = Signal.objects.get(run=suspended).effective_at
    Run.objects.filter(id=suspended).update(due_at=timezone.now())
    run = office.advance(suspended)  # a worker lets go until the decision counts
    assert (run.status, run.due_at, office.started(suspended)) == ("suspended", effective, 0)
    assert Gate.objects.get(run=suspended).state == "decided"
    Approval.objects.filter(id=approval.id).update(decided_by="dora")
    answer = bea_api.post(f"/approvals/{approval.id}/undo")
    assert (answer.status_code, answer.json()["decided_by"]) == (409, "dora")
    Approval.objects.filter(id=approval.id).update(decided_by="bea")
    answer = bea_api.post(f"/approvals/{approval.id}/undo")
    assert (answer.status_code, answer.json()["status"]) == (200, "pending")
    assert answer.json()["decided_by"] is None
    assert Run.objects.get(id=suspended).mailbox == run.mailbox + 1
    assert Gate.objects.get(run=suspended).state == "open"
    assert not Signal.objects.filter(run=suspended).exists()
    row = Approval.objects.get(id=approval.id)
    assert (row.statement, row.signature, row.effective_at) == (None, None, None)
    assert office.advance(suspended).status == "suspended"
    assert office.started(suspended) == 0
    again = bea_api.post(f"/approvals/{approval.id}/undo")
    assert code_of(again) == (409, "not_decided")
    assert decide(bea_api, approval, 0)["effective_at"] is None
    assert office.advance(suspended).status == "completed"
    assert office.started(suspended) == 1
    acts = AuditEntry.objects.filter(subject=f"request {approval.id}").order_by("seq")
    assert [row.act for row in acts] == ["requested", "approved", "undone", "approved"]
    audit.verify(suspended)


def test_cancelling_beats_a_decision_within_its_window(
    ada_api: Caller, bea_api: Caller, office: Office, suspended: UUID
) -> None:
    approval = office.request(suspended)
    decide(bea_api, approval)
    ada_api.post(f"/runs/{suspended}/cancel", {"reason": "Not needed."})
    row = Approval.objects.get(id=approval.id)
    assert (row.status, row.decided_by, row.statement) == ("cancelled", "ada", None)
    assert Gate.objects.get(run=suspended).state == "closed"
    answer = bea_api.post(f"/approvals/{approval.id}/undo")
    assert code_of(answer) == (409, "cancelled")
    assert office.advance(suspended).status == "cancelled"
    assert office.started(suspended) == 0


def test_an_undo_during_a_step_keeps_the_decision_out(
    bea_api: Caller, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undo the decision after the step has read it, before the step is committed."""
    approval = office.request(suspended)
    decide(bea_api, approval, 0)
    undone: list[UUID] = []
    real = signals.build_pending_signals

    def mail(count: int, *read: Any) -> signals.PendingSignals:
        found = real(count, *read)
        if found.due and not undone:
            undone.append(suspended)
            # As the web would, had its transaction come first: the signal is gone, the mailbox raised.
            Signal.objects.filter(run=suspended).delete()
            Gate.objects.filter(run=suspended).update(state="open", decided_at=None)
            Run.objects.filter(id=suspended).update(mailbox=count + 1)
        return found

    monkeypatch.setattr(signals, "build_pending_signals", mail)
    assert office.advance(suspended).status == "suspended"
    assert undone == [suspended]
    assert office.started(suspended) == 0
    assert Gate.objects.get(run=suspended).state == "open"


# Forging


@pytest.mark.parametrize("changed", [(Signal,), (Signal, Approval)], ids=len)
def test_a_decision_made_to_count_earlier_parks_the_run(
    bea_api: Caller, office: Office, suspended: UUID, changed: tuple[type[Any], ...]
) -> None:
    decide(bea_api, office.request(suspended))
    for table in changed:
        table.objects.filter(run=suspended).update(
            effective_at=timezone.now() - timedelta(seconds=1)
        )
    Run.objects.filter(id=suspended).update(due_at=timezone.now())
    run = office.advance(suspended)
    assert (run.status, office.started(suspended)) == ("quarantined", 0)
    if changed == (Signal,):
        assert "can still be undone" in str(run.reason)


# The page


def test_the_page_offers_the_way_back_to_the_one_who_decided(
    bea: Client, ada: Client, asked: Approval, office: Office, settings: Settings
) -> None:
    path = f"/a/{asked.id}/"
    doubt = office.in_doubt_request(office.in_doubt())
    settings.SIGNOFF_UNDO_SECONDS = WINDOW
    send(bea, asked, "approve")
    shows(bea, asked, "Approved by you", f"{path}undo/")
    shows(ada, asked, hides=[f"{path}undo/"])
    has(text_of(bea.post(f"{path}undo/", follow=True)), "Undone", f"{path}approve/")
    again = text_of(bea.post(f"{path}undo/", follow=True))
    has(again, "This approval has no decision to undo.")
    send(bea, doubt, "settle/give-up", reason="No trace found.")
    shows(bea, doubt, f"/a/{doubt.id}/undo/")
    bea.post(f"/a/{doubt.id}/undo/")
    assert Approval.objects.get(id=doubt.id).status == "pending"
