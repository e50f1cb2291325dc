"""The rules of the stores of waits and external events, on real Postgres."""

from dataclasses import replace
from datetime import timedelta
from uuid import UUID

import pytest
from django.db import transaction
from django.utils import timezone

from runtime.control.external_events import Delivered, deliver
from runtime.core.continuation import Call, CallState, Continuation, Frame
from runtime.core.events import WaitStarted
from runtime.models import ExternalEvent, Run, Signal, Wait
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.records import Records, changed
from runtime.store.tables import external_events, waits
from runtime.store.tables.waits import EventWait
from tests.control.test_external_events import HOOK
from tests.support.engine import MakeBench
from tests.support.fake_ports import say, turns
from tests.support.threads import in_thread, wait_until_blocked

PLACES = [("0", "c1.0"), ("0", "c1.1"), ("0.c1.2", "c1.0")]


@pytest.fixture
def runs(rig: MakeBench) -> tuple[UUID, UUID]:
    """Two runs that wait at the same places, the one that was started last for the longer time."""
    desk = rig({"a": turns(say("done"))})
    first, second = desk.start("a"), desk.start("a")
    for run in (second, first):
        for frame, call in PLACES:
            Wait.objects.create(
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
    values = {"run": run, **waits.parameters((begun,), (PLACES[0],))}
    for written, left in ((False, set(PLACES)), (True, {*PLACES[1:], ("0", "c2.0")})):
        row = f"SELECT id FROM runtime_run WHERE id = %(run)s AND {written}"
        for part in (waits.OPEN, waits.CLOSE):
            own.execute(f"WITH run AS ({row}) {part}", values)
        assert waits.open_of(own, run) == left
        assert waits.open_of(own, other) == set(PLACES)
    found = Wait.objects.get(event="paid")
    assert (found.run_id, found.match, found.until) == (run, begun.match, begun.until)


def test_a_wait_that_ends_in_its_own_step_is_not_written() -> None:
    call = Call(id="c1.0", tool="t", args={}, state=CallState.WAITING)
    frame = Frame(id="0", agent="a", fingerprint="f", prompt="p", turn=1, calls=(call,))
    lasts = Continuation(run=UUID(int=1), frames={"0": frame})
    ended = lasts.with_frame(frame.with_call(replace(call, state=CallState.RETURNED)))
    began = WaitStarted(frame="0", call="c1.0", until=timezone.now(), event="reply")
    records = Records()
    records.add(changed(began))
    assert records.opened_waits(lasts) == (began,)
    assert records.opened_waits(ended) == ()


def test_an_event_ends_a_wait_once_and_no_other(own: Connection, runs: tuple[UUID, UUID]) -> None:
    run, other = runs
    frame, call = PLACES[0]
    wait = EventWait(run=run, frame=frame, call=call)
    assert [waits.complete(own, wait) for _ in range(2)] == [True, False]
    assert waits.open_of(own, run) == set(PLACES[1:])
    waits.close_all(own, run)
    assert waits.open_of(own, run) == set()
    assert waits.open_of(own, other) == set(PLACES)


def test_no_more_waits_are_looked_at_than_one_event_may_end(
    own: Connection, runs: tuple[UUID, UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = waits.matching(own, "signed", "{}", limit=4)
    order = [(run, *place) for run in runs for place in PLACES]
    assert [(wait.run, wait.frame, wait.call) for wait in found] == order[:4]
    monkeypatch.setattr("runtime.control.external_events.MAX_MATCHED", 2 * len(PLACES))
    assert send().event.waits == 2 * len(PLACES)


def send(id: str = "e-1") -> Delivered:
    return deliver(id=id, name="signed", data={}, actor=HOOK)


def test_an_event_ends_no_wait_of_a_run_that_is_over(runs: tuple[UUID, UUID]) -> None:
    """Whose end has taken them away by now, but not when the event looked."""
    Run.objects.filter(id=runs[0]).update(status="failed", ended_at=timezone.now(), due_at=None)
    sent = send()
    assert (sent.event.waits, sent.runs) == (len(PLACES), (runs[1],))
    assert set(Signal.objects.values_list("run_id", flat=True)) == {runs[1]}
    assert waits.open_of(pool.djangos(), runs[0]) == set(PLACES)
    send("e-2")
    counts = ExternalEvent.objects.values_list("id", "waits").order_by("id")
    assert list(counts) == [("e-1", len(PLACES)), ("e-2", 0)]


def test_an_event_takes_hold_of_its_runs_in_their_order(
    own: Connection, runs: tuple[UUID, UUID]
) -> None:
    """Two events that end waits of the same runs could wait for each other otherwise."""
    with transaction.atomic():
        Run.objects.select_for_update().get(id=runs[0])
        sender = in_thread(send)
        wait_until_blocked("mailbox = mailbox + 1")
        own.execute("SET lock_timeout = '200ms'")
        own.execute("SELECT FROM runtime_run WHERE id = %s FOR UPDATE NOWAIT", (runs[1],))
    sender.join(60)
    assert Wait.objects.count() == 0


@pytest.mark.usefixtures("everything_permitted")
def test_only_so_many_ids_are_forgotten_at_once(
    own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_events, "PRUNED", 2)
    # The remaining plan evaluates the subquery for each row.
    for way in ("hashjoin", "mergejoin", "hashagg", "material", "sort"):
        own.execute(f"SET enable_{way} = off")
    for number in range(3):
        send(f"e-{number}")
    ExternalEvent.objects.update(at=timezone.now() - timedelta(days=31))
    assert [external_events.prune(own) for _ in range(3)] == [2, 1, 0]
