"""Calls that wait for an event or a time: they occupy no worker, and end once."""

import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

from runtime.control.external_events import Delivered, deliver
from runtime.control.forks import fork as fork_run
from runtime.control.transfer import export_run
from runtime.control.verification import verify
from runtime.core.run.continuation import Call, Continuation, Frame
from runtime.core.run.events import WaitStarted
from runtime.core.values.call_options import CallOptions
from runtime.core.values.enums import CallState, EffectClass
from runtime.errors import EventConflict, TooManyMatched
from runtime.models import ExternalEvent, Run, Signal, WaitingCall
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.runs import delete_rows
from runtime.store.steps import Records
from runtime.store.tables import received_events, waits
from runtime.store.tables.waits import EventWait
from runtime.upkeep import retention
from tests.support.engine import (
    ADA,
    MakeBench,
    Rig,
    cancel,
    events,
    later,
    pause,
    resume,
    set_clock,
    types,
)
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.people import until
from tests.support.threads import Hold, holding, in_thread, wait_until_blocked

HOOK = Actor(person="hook", token="t-1")
DATA = {"contract": "C-1", "by": {"name": "Bo"}}
OTHERS: list[tuple[str, dict[str, Any]]] = [
    ("paid", DATA),
    ("signed", {"contract": "C-2"}),
    ("signed", {}),
    ("signed", {"by": DATA}),
]
ARRIVED = {"event": "signed", "id": "e-1", "data": DATA}


def send(id: str = "e-1", name: str = "signed", data: dict[str, Any] | None = None) -> Delivered:
    return deliver(id=id, name=name, data=DATA if data is None else data, actor=HOOK)


def waits_for(match: Any = None, *, until: datetime | None = None, event: str = "signed") -> Any:
    moment = until or timezone.now() + timedelta(days=2)
    return ("wait", {"event": event, "match": match or {}, "until": moment.isoformat()})


def result_of(desk: Rig, place: int = 0) -> Any:
    """Return the last message to the model about the call."""
    return desk.effects.models[-1].messages[-1]["results"][place]["content"]


@pytest.fixture
def desk(rig: MakeBench) -> Callable[..., Rig]:
    def make(*steps: Any, **tools: FakeTool) -> Rig:
        wait = FakeTool(effect=EffectClass.READ, waits="event")
        sleep = FakeTool(effect=EffectClass.READ, waits="time")
        return rig({"a": turns(*steps, say("done"))}, wait=wait, sleep=sleep, **tools)

    return make


def waiting(one: Rig) -> UUID:
    """A run as far as its waits."""
    run = one.start("a")
    assert one.advance(run).status == "waiting"
    return run


def test_a_run_waits_for_an_event_without_a_worker(desk: Callable[..., Rig]) -> None:
    until = timezone.now() + timedelta(days=2)
    one = desk(ask(waits_for({"contract": "C-1"}, until=until)))
    run = one.start("a")
    row = one.advance(run)
    assert (row.status, row.owner, row.due_at) == ("waiting", None, until)
    wait = WaitingCall.objects.get(run=run)
    assert (wait.event, wait.match, wait.until) == ("signed", {"contract": "C-1"}, until)
    assert types(run)[-1] == "WaitStarted"
    assert verify(run).is_consistent
    for other, (name, data) in enumerate(OTHERS):
        assert send(f"other-{other}", name, data).event.waits == 0
    sent = send()
    assert (sent.new, sent.event.waits, sent.runs) == (True, 1, (run,))
    assert verify(run).is_consistent
    assert one.advance(run).status == "completed"
    assert result_of(one) == ARRIVED
    assert [event["outcome"] for event in events(run) if event["type"] == "WaitEnded"] == [
        "arrived"
    ]
    assert one.approvals.notes[-1][1:] == (HOOK, "sent", {"event": "signed", "id": "e-1"})
    assert not WaitingCall.objects.exists()
    assert one.effects.calls == []
    assert verify(run).is_consistent


def test_a_short_sleep_is_slept_by_the_worker(desk: Callable[..., Rig]) -> None:
    until = (timezone.now() + timedelta(seconds=1.5)).isoformat()
    one = desk(ask(("sleep", {"moment": until})))
    run = one.start("a")
    assert one.advance(run).status == "completed"
    assert datetime.fromisoformat(result_of(one)["slept_until"]) == datetime.fromisoformat(until)


def test_an_event_that_comes_before_its_wait_is_not_kept_for_it(desk: Callable[..., Rig]) -> None:
    assert send().event.waits == 0
    one = desk(ask(waits_for()), ask(waits_for({"contract": "C-1"})))
    run = waiting(one)
    assert not send().new
    assert one.advance(run).status == "waiting"
    assert send("e-2").event.waits == 1
    assert one.advance(run).status == "waiting"  # for the next one
    again = send("e-2")
    assert (again.new, again.event.waits, again.runs) == (False, 1, ())
    assert not Signal.objects.exists()
    for name, data in (("signed", {}), ("paid", DATA)):
        with pytest.raises(EventConflict):
            send("e-2", name, data)
    assert ExternalEvent.objects.count() == 2


def test_more_waits_than_one_event_may_end_are_left_alone(
    desk: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.control.external_events.MAX_MATCHED", 1)
    one = desk(ask(waits_for(), waits_for({"contract": "C-1"})))
    run = waiting(one)
    with pytest.raises(TooManyMatched):
        send()
    assert (WaitingCall.objects.count(), ExternalEvent.objects.count()) == (2, 0)
    WaitingCall.objects.filter(call="c1.0").update(call="c9.9")
    lost, made_up = "wait 0/c1.0", "wait 0/c9.9"
    assert {finding.subject for finding in verify(run).findings} == {lost, made_up}


def test_cancelling_closes_waits_and_leaves_no_event(desk: Callable[..., Rig]) -> None:
    one = desk(
        ask(waits_for(), waits_for(event="paid"), ("sleep", {"moment": waits_for()[1]["until"]}))
    )
    run = waiting(one)
    cancel(run)
    send()
    row = one.advance(run)
    assert (row.status, len(one.effects.models)) == ("cancelled", 1)
    ends = [event["outcome"] for event in events(run) if event["type"] == "WaitEnded"]
    assert ends == ["closed"] * 3
    assert not WaitingCall.objects.exists()
    assert send("e-2", "paid").event.waits == 0
    assert verify(run).is_consistent


def test_an_event_in_a_pause_is_kept_and_the_wait_is_stopped(
    desk: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = desk(ask(waits_for(), waits_for(event="paid")))
    run = waiting(one)
    pause(run)
    assert one.advance(run).due_at is None
    send()
    assert one.advance(run).status == "paused"
    set_clock(monkeypatch, lambda: timezone.now() + timedelta(days=3))
    later(run)
    assert one.advance(run).status == "paused"
    assert types(run).count("WaitEnded") == 1
    resume(run)
    assert one.advance(run).status == "completed"
    assert [result_of(one, place) for place in (0, 1)] == [ARRIVED, {"timed_out": True}]


def test_a_fork_waits_for_itself_and_an_exported_run_no_more(desk: Callable[..., Rig]) -> None:
    one = desk(ask(waits_for()))
    run = waiting(one)
    fork = fork_run(run=run, position=Run.objects.get(id=run).position, actor=ADA)
    assert one.advance(fork).status == "waiting"
    assert WaitingCall.objects.count() == 2
    export_run(run=run, actor=ADA)
    assert send().runs == (fork,)
    assert one.advance(fork).status == "completed"
    assert (verify(run).is_consistent, verify(fork).is_consistent) == (True, True)


# Races


def test_an_uncommitted_event_is_not_lost_at_suspension(desk: Callable[..., Rig]) -> None:
    hold = Hold(ToolResult(value="done"))
    one = desk(ask(waits_for(), ("t", {})), t=FakeTool(body=hold))
    run = one.start("a")
    with holding(one, run, hold), transaction.atomic():
        send()
        hold.go_on.set()
        wait_until_blocked("runtime_journalentry")
    assert Run.objects.get(id=run).status == "completed"
    assert result_of(one) == ARRIVED
    assert verify(run).is_consistent


def test_an_event_before_the_timeout_is_the_only_outcome(
    desk: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its transaction holds the run when the wait's time comes, so the worker reads it first."""
    until_ = timezone.now() + timedelta(hours=1)
    moment = until_ - timedelta(seconds=1)  # the worker waits for it
    set_clock(monkeypatch, lambda: moment)
    one = desk(ask(waits_for(until=until_)))
    run = one.start("a")
    worker = in_thread(lambda: one.advance(run))
    until(lambda: WaitingCall.objects.filter(run=run).exists() or None, "the wait to begin")
    with transaction.atomic():
        assert send().event.waits == 1
        moment = until_
        wait_until_blocked("runtime_journalentry")  # as far as Postgres shows the statement
    worker.join(60)
    assert result_of(one) == ARRIVED
    assert types(run).count("WaitEnded") == 1
    assert verify(run).is_consistent


@pytest.mark.parametrize("other", ["the end of the wait", "the same event"])
def test_an_event_that_comes_second_has_no_effect(desk: Callable[..., Rig], other: str) -> None:
    """The event found the wait, but another transaction has locked the run, or has written the event's id."""
    one = desk(ask(waits_for()))
    run = waiting(one)
    sent: list[Delivered] = []
    with transaction.atomic():
        if other == "the same event":
            assert send().new
            sender = in_thread(lambda: sent.append(send()))
            wait_until_blocked("runtime_externalevent")
        else:
            Run.objects.select_for_update().get(id=run)
            sender = in_thread(lambda: sent.append(send()))
            wait_until_blocked("mailbox = mailbox + 1")
            WaitingCall.objects.filter(run=run).delete()
    sender.join(60)
    told_before = other == "the same event"
    assert (sent[0].new, sent[0].event.waits) == (not told_before, int(told_before))
    assert Signal.objects.count() == int(told_before)


# The tables of waits and events


PLACES = [("0", "c1.0"), ("0", "c1.1"), ("0.c1.2", "c1.0")]


@pytest.fixture
def runs(rig: MakeBench) -> tuple[UUID, UUID]:
    """Two runs that wait at the same places, the one that was started last for the longer time."""
    desk = rig({"a": turns(say("done"))})
    first, second = desk.start("a"), desk.start("a")
    for run in (second, first):
        for frame, call in PLACES:
            WaitingCall.objects.create(
                run_id=run, frame=frame, call=call, event="signed", match={}, until=timezone.now()
            )
    return first, second


def test_a_step_begins_and_ends_waits_of_its_run_if_it_is_written(
    own: Connection, runs: tuple[UUID, UUID]
) -> None:
    run, other = runs
    begun = WaitStarted(
        frame="0", call="c2.0", until=timezone.now(), event="paid", match={"contract": "C-1"}
    )
    values = {"run": run, **waits.build_wait_parameters((begun,), (PLACES[0],))}
    for written, left in ((False, set(PLACES)), (True, {*PLACES[1:], ("0", "c2.0")})):
        row = f"SELECT id FROM runtime_run WHERE id = %(run)s AND {written}"
        for part in (waits.OPEN, waits.CLOSE):
            own.execute(f"WITH run AS ({row}) {part}", values)
        assert waits.list_open_waits(own, run) == left
        assert waits.list_open_waits(own, other) == set(PLACES)
    found = WaitingCall.objects.get(event="paid")
    assert (found.run_id, found.match, found.until) == (run, begun.match, begun.until)


def test_a_wait_that_ends_in_its_own_step_is_not_written() -> None:
    terms = CallOptions(effect=EffectClass.READ, digest="sha256:d", deadline=30.0, waits="event")
    call = Call(id="c1.0", tool="t", args={}, state=CallState.WAITING, terms=terms)
    frame = Frame(id="0", agent="a", fingerprint="f", prompt="p", turn=1, calls=(call,))
    lasts = Continuation(run=UUID(int=1), frames={"0": frame})
    ended = lasts.with_frame(frame.with_call(replace(call, state=CallState.RETURNED)))
    began = WaitStarted(frame="0", call="c1.0", until=timezone.now(), event="reply")
    records = Records()
    records.add(began)
    assert records.parts(lasts, lasts)["opened_waits"] == (began,)
    assert records.parts(lasts, ended)["opened_waits"] == ()


def test_an_event_ends_a_wait_once_and_no_other(own: Connection, runs: tuple[UUID, UUID]) -> None:
    run, other = runs
    frame, call = PLACES[0]
    wait = EventWait(run=run, frame=frame, call=call)
    assert [waits.complete(own, wait) for _ in range(2)] == [True, False]
    assert waits.list_open_waits(own, run) == set(PLACES[1:])
    delete_rows(own, run, "runtime_waitingcall")
    assert waits.list_open_waits(own, run) == set()
    assert waits.list_open_waits(own, other) == set(PLACES)


def test_no_more_waits_are_looked_at_than_one_event_may_end(
    own: Connection, runs: tuple[UUID, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = waits.list_matching_waits(own, "signed", "{}", limit=4)
    order = [(run, *place) for run in runs for place in PLACES]
    assert [(wait.run, wait.frame, wait.call) for wait in found] == order[:4]
    monkeypatch.setattr("runtime.control.external_events.MAX_MATCHED", 2 * len(PLACES))
    assert send(data={}).event.waits == 2 * len(PLACES)


def test_an_event_ends_no_wait_of_a_run_that_is_over(runs: tuple[UUID, UUID]) -> None:
    Run.objects.filter(id=runs[0]).update(status="failed", ended_at=timezone.now(), due_at=None)
    sent = send(data={})
    assert (sent.event.waits, sent.runs) == (len(PLACES), (runs[1],))
    assert set(Signal.objects.values_list("run_id", flat=True)) == {runs[1]}
    assert waits.list_open_waits(pool.use_django_connection(), runs[0]) == set(PLACES)
    send("e-2", data={})
    counts = ExternalEvent.objects.values_list("id", "waits").order_by("id")
    assert list(counts) == [("e-1", len(PLACES)), ("e-2", 0)]


def test_an_event_locks_its_runs_in_their_order(own: Connection, runs: tuple[UUID, UUID]) -> None:
    """Two events that end waits of the same runs could wait for each other otherwise."""
    with transaction.atomic():
        Run.objects.select_for_update().get(id=runs[0])
        sender = in_thread(lambda: send(data={}))
        wait_until_blocked("mailbox = mailbox + 1")
        own.execute("SET lock_timeout = '200ms'")
        own.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE NOWAIT", (runs[1],))
    sender.join(60)
    assert WaitingCall.objects.count() == 0


@pytest.mark.usefixtures("everything_permitted")
def test_ids_are_known_for_thirty_days_and_only_so_many_are_forgotten_at_once(
    own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(received_events, "PRUNED", 2)
    # The remaining plan evaluates the subquery for each row.
    for way in ("hashjoin", "mergejoin", "hashagg", "material", "sort"):
        own.execute(f"SET enable_{way} = off")
    for number in range(3):
        send(f"e-{number}", data={})
    ExternalEvent.objects.update(at=timezone.now() - timedelta(days=30, minutes=1))
    send("new")
    assert received_events.prune_ids(own) == 2
    retention.enforce(own, threading.Event())
    assert ExternalEvent.objects.get().id == "new"
