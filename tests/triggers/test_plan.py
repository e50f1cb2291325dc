"""What the times of a schedule do, and that each time is in one plan only."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.triggers import schedule_definition
from runtime.triggers.calendar import delay
from runtime.triggers.schedule_definition import Busy, Missed, Overlap, ScheduleDefinition, TimeAct

ID = UUID(int=7)
NOON = datetime(2026, 5, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
HOURLY = ScheduleDefinition(
    name="hourly",
    agent="a",
    input={},
    cron="0 * * * *",
    every=None,
    zone="UTC",
    starts_at=NOON,
    ends_at=None,
    missed=Missed.ONCE,
    overlap=Overlap.SKIP,
    jitter=0,
)
CRONS = st.sampled_from(["* * * * *", "*/7 * * * *", "0 * * * *", "30 2 * * *"])
BUSY = st.builds(
    Busy,
    running=st.booleans(),
    own_running=st.booleans(),
    waiting=st.integers(0, schedule_definition.MAX_WAITING_TIMES),
)


@pytest.mark.slow
@given(
    cron=CRONS,
    missed=st.sampled_from(Missed),
    overlap=st.sampled_from(Overlap),
    jitter=st.sampled_from([0, 30, 3600]),
    looks=st.lists(st.integers(0, 20_000), min_size=1, max_size=8),
    busy=BUSY,
)
def test_each_time_is_in_one_plan_however_often_and_late_a_sweeper_looks(
    cron: str, missed: Missed, overlap: Overlap, jitter: int, looks: list[int], busy: Busy
) -> None:
    one = replace(HOURLY, cron=cron, missed=missed, overlap=overlap, jitter=jitter)
    next_at = one.calendar.first_after(NOON)
    assert next_at is not None
    now, seen = NOON, list[datetime]()
    for seconds in looks:
        now += timedelta(seconds=seconds - 1000)  # the clock may also go back
        found = schedule_definition.plan_due(ID, one, next_at, now, busy)
        times = [step.at for step in found.times]
        assert all(at + delay(ID, at, jitter) <= now for at in times)
        planned = one.calendar.between(next_at, times[-1], 10**6) if times else []
        assert times == planned[-schedule_definition.MAX_MISSED :]
        starts = [step.at for step in found.times if step.act is TimeAct.START]
        if overlap is not Overlap.ALLOW:
            assert len(starts) <= (0 if busy.running else 1)
        ready = accumulate((at + delay(ID, at, jitter) for at in times), max)
        late = [
            at
            for at, since in zip(times, ready, strict=True)
            if since < now - schedule_definition.LATE
        ]
        if missed is not Missed.ALL:
            assert sum(at in late for at in starts) <= (missed is Missed.ONCE)
        seen += times
        assert found.next_at is not None
        assert found.next_at == (one.calendar.first_after(times[-1]) if times else next_at)
        next_at = found.next_at
    assert seen == sorted(set(seen))


@pytest.mark.parametrize(
    ("missed", "overlap", "minutes", "busy", "acts"),
    [
        # Three times passed during an outage, and the fourth is due now
        (Missed.SKIP, Overlap.ALLOW, 180, Busy(), "skip skip skip start"),
        (Missed.ONCE, Overlap.ALLOW, 180, Busy(), "skip skip skip start"),
        (Missed.ALL, Overlap.ALLOW, 180, Busy(), "start start start start"),
        (Missed.ALL, Overlap.SKIP, 180, Busy(), "start wait wait skip"),
        (Missed.ALL, Overlap.QUEUE, 180, Busy(), "start wait wait wait"),
        # The same, and none is due now
        (Missed.SKIP, Overlap.SKIP, 210, Busy(), "skip skip skip skip"),
        (Missed.ONCE, Overlap.SKIP, 210, Busy(), "skip skip skip start"),
        # One is due while an earlier run goes on: its own, or one of a back-fill
        (Missed.ONCE, Overlap.SKIP, 0, Busy(running=True, own_running=True), "skip"),
        (Missed.ONCE, Overlap.SKIP, 0, Busy(running=True), "wait"),
        (Missed.ONCE, Overlap.SKIP, 0, Busy(waiting=1), "skip"),
        (Missed.ONCE, Overlap.QUEUE, 0, Busy(running=True, own_running=True, waiting=99), "wait"),
        (Missed.ONCE, Overlap.QUEUE, 0, Busy(running=True, own_running=True, waiting=100), "skip"),
        (Missed.ONCE, Overlap.ALLOW, 0, Busy(running=True, own_running=True, waiting=100), "start"),
    ],
)
def test_what_due_times_do(
    missed: Missed, overlap: Overlap, minutes: int, busy: Busy, acts: str
) -> None:
    one = replace(HOURLY, missed=missed, overlap=overlap)
    now = NOON + timedelta(minutes=minutes)
    assert (
        " ".join(step.act for step in schedule_definition.plan_due(ID, one, NOON, now, busy).times)
        == acts
    )


def test_a_year_of_missed_minutes_is_bounded() -> None:
    one = replace(HOURLY, cron="* * * * *", missed=Missed.ALL, overlap=Overlap.ALLOW)
    found = schedule_definition.plan_due(ID, one, NOON, NOON + timedelta(days=366), Busy())
    assert len(found.times) == schedule_definition.MAX_MISSED
    once = replace(one, missed=Missed.ONCE)
    steps = schedule_definition.plan_due(ID, once, NOON, NOON + timedelta(days=366), Busy()).times
    assert (steps[0].reason, steps[1].reason) == (
        schedule_definition.EARLIER,
        schedule_definition.MISSED,
    )


def test_jitter_delays_a_time_always_by_the_same() -> None:
    delays = {delay(ID, NOON + n * HOUR, 600) for n in range(50)}
    assert len(delays) > 30
    assert max(delays) <= timedelta(seconds=600)
    one = replace(HOURLY, jitter=600)
    due_at = schedule_definition.start_time(ID, one, NOON)
    assert due_at is not None
    early = schedule_definition.plan_due(ID, one, NOON, due_at - timedelta(seconds=1), Busy())
    assert (early.times, early.next_at) == ((), NOON)
    assert schedule_definition.plan_due(ID, one, NOON, due_at, Busy()).next_at == NOON + HOUR


def test_jitter_longer_than_the_interval_misses_nothing() -> None:
    """A time with a short delay waits for an earlier one with a longer delay."""
    one = replace(HOURLY, cron="* * * * *", jitter=600, missed=Missed.SKIP, overlap=Overlap.ALLOW)
    next_at, acts = NOON, []
    for seconds in range(0, 3600, 15):  # a sweeper plans every few seconds
        found = schedule_definition.plan_due(
            ID, one, next_at, NOON + timedelta(seconds=seconds), Busy()
        )
        next_at = found.next_at or NOON
        acts += [step.act for step in found.times]
    assert set(acts) == {TimeAct.START}
    assert len(acts) > 49
