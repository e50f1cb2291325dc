"""Calls that wait for an event or a time: they occupy no worker, and end once."""

import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

from runtime.control.external_events import Delivered
from runtime.control.external_events import deliver as deliver_event
from runtime.control.fork import fork as fork_run
from runtime.control.transfer import export_run
from runtime.control.verification import verify
from runtime.core.enums import EffectClass
from runtime.errors import EventConflict, TooManyMatched
from runtime.models import ExternalEvent, Run, Signal, Wait
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from runtime.store import pool
from runtime.store.tables import external_events
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
    return deliver_event(id=id, name=name, data=DATA if data is None else data, actor=HOOK)


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
    wait = Wait.objects.get(run=run)
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
    assert not Wait.objects.exists()
    assert one.effects.calls == []
    assert verify(run).is_consistent


def test_a_short_sleep_is_slept_by_the_worker(desk: Callable[..., Rig]) -> None:
    until = (timezone.now() + timedelta(seconds=0.3)).isoformat()
    one = desk(ask(("sleep", {"moment": until})))
    run = one.start("a")
    assert one.advance(run).status == "completed"
    assert datetime.fromisoformat(result_of(one)["slept_until"]) == datetime.fromisoformat(until)


def test_an_event_that_comes_before_its_wait_is_not_kept_for_it(desk: Callable[..., Rig]) -> None:
    """It counts once by its id."""
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
    assert (Wait.objects.count(), ExternalEvent.objects.count()) == (2, 0)
    Wait.objects.filter(call="c1.0").update(call="c9.9")
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
    assert not Wait.objects.exists()
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
    assert Wait.objects.count() == 2
    export_run(run=run, actor=ADA)
    assert send().runs == (fork,)
    assert one.advance(fork).status == "completed"
    assert (verify(run).is_consistent, verify(fork).is_consistent) == (True, True)


def test_ids_are_known_for_thirty_days(desk: Callable[..., Rig]) -> None:
    send("old")
    send("new")
    gone = timezone.now() - timedelta(days=external_events.KEPT_DAYS, minutes=1)
    ExternalEvent.objects.filter(id="old").update(at=gone)
    with pool.pooled() as pooled:
        retention.enforce(pooled, threading.Event())
    assert [event.id for event in ExternalEvent.objects.all()] == ["new"]


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
    until(lambda: Wait.objects.filter(run=run).exists() or None, "the wait to begin")
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
            wait_until_blocked("runtime_outsideevent")
        else:
            Run.objects.select_for_update().get(id=run)
            sender = in_thread(lambda: sent.append(send()))
            wait_until_blocked("mailbox = mailbox + 1")
            Wait.objects.filter(run=run).delete()
    sender.join(60)
    told_before = other == "the same event"
    assert (sent[0].new, sent[0].event.waits) == (not told_before, int(told_before))
    assert Signal.objects.count() == int(told_before)
