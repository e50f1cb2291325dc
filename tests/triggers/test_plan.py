"""What the times of a schedule do, and that each time is in one plan only."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.triggers import schedule_definition
from runtime.triggers.calendar import Calendar, NeverComes, check_cron, compute_delay
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
    next_at = one.calendar.find_first_after(NOON)
    assert next_at is not None
    now, seen = NOON, list[datetime]()
    for seconds in looks:
        now += timedelta(seconds=seconds - 1000)  # the clock may also go back
        found = schedule_definition.plan_due(ID, one, next_at, now, busy)
        times = [step.at for step in found.times]
        assert all(at + compute_delay(ID, at, jitter) <= now for at in times)
        planned = one.calendar.list_times_between(next_at, times[-1], 10**6) if times else []
        assert times == planned[-schedule_definition.MAX_MISSED :]
        starts = [step.at for step in found.times if step.act is TimeAct.START]
        if overlap is not Overlap.ALLOW:
            assert len(starts) <= (0 if busy.running else 1)
        ready = accumulate((at + compute_delay(ID, at, jitter) for at in times), max)
        late = [
            at
            for at, since in zip(times, ready, strict=True)
            if since < now - schedule_definition.LATE
        ]
        if missed is not Missed.ALL:
            assert sum(at in late for at in starts) <= (missed is Missed.ONCE)
        seen += times
        assert found.next_at is not None
        assert found.next_at == (one.calendar.find_first_after(times[-1]) if times else next_at)
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
    delays = {compute_delay(ID, NOON + n * HOUR, 600) for n in range(50)}
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


# Calendars


MINUTE = timedelta(minutes=1)
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
# Shortly before a change of clocks, in the zone: by an hour, by half an hour, and at midnight
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 28, 23, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 24, 22, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 5, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 4, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 13, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 13, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 4, 5, 1, tzinfo=UTC)),
    ("America/Santiago", datetime(2026, 9, 6, 2, tzinfo=UTC)),
    ("UTC", datetime(2026, 3, 29, tzinfo=UTC)),
]
# Fields with the numbers that they mean
MINUTES = {
    "*": set(range(60)),
    "*/20": {0, 20, 40},
    "0": {0},
    "30": {30},
    "15,45": {15, 45},
    "0-20/10": {0, 10, 20},
}
HOURS = {
    "*": set(range(24)),
    "*/3": set(range(0, 24, 3)),
    "0": {0},
    "1": {1},
    "2": {2},
    "1-3": {1, 2, 3},
    "23": {23},
}


def berlin(cron: str, **more: Any) -> Calendar:
    return Calendar(cron=cron, every=None, zone="Europe/Berlin", starts_at=LONG_AGO, **more)


def model(
    minute: str, hour: str, zone: str, first: datetime, until: datetime
) -> Iterator[datetime]:
    """Look at each minute of UTC: does the clock on the wall show a time of the expression?"""
    once = not (minute.startswith("*") or hour.startswith("*"))
    seen: set[datetime] = set()
    at = first - timedelta(days=1)
    before = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None) - MINUTE
    while at <= until:
        local = at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
        skipped = [before + MINUTE * n for n in range(1, (local - before) // MINUTE)]
        shown = [local, *(skipped if once else [])]
        hits = {one for one in shown if one.minute in MINUTES[minute] and one.hour in HOURS[hour]}
        if (hits - seen if once else hits) and at >= first:
            yield at
        seen |= hits
        before = local
        at += MINUTE


@given(
    change=st.sampled_from(CHANGES),
    minute=st.sampled_from(sorted(MINUTES)),
    hour=st.sampled_from(sorted(HOURS)),
    shift=st.integers(0, 480),
    length=st.integers(0, 1200),
)
def test_times_are_those_on_the_wall(
    change: tuple[str, datetime], minute: str, hour: str, shift: int, length: int
) -> None:
    zone, near = change
    first = near + shift * MINUTE
    until = first + length * MINUTE
    expected = list(model(minute, hour, zone, first, until))
    found = Calendar(cron=f"{minute} {hour} * * *", every=None, zone=zone, starts_at=LONG_AGO)
    assert found.list_times_between(first, until, 2000) == expected
    assert found.list_newest_times(first, until, 2000) == expected
    assert found.list_newest_times(first, until, 3) == expected[-3:]
    assert found.find_first_after(first - MINUTE) == next(
        iter(expected), found.find_first_after(until)
    )


@pytest.mark.parametrize(
    ("cron", "day", "times"),
    [
        ("30 2 * * *", "2026-03-29", ["03:00+02:00"]),  # does not exist: at the end of the gap
        ("30 2 * * *", "2026-10-25", ["02:30+02:00"]),  # exists twice: the first
        ("15,45 2 * * *", "2026-03-29", ["03:00+02:00"]),
        ("30 * * * *", "2026-03-29", ["01:30+01:00", "03:30+02:00"]),
        ("30 * * * *", "2026-10-25", ["01:30+02:00", "02:30+02:00", "02:30+01:00", "03:30+01:00"]),
    ],
)
def test_what_happens_when_clocks_change_is_what_the_page_says(
    cron: str, day: str, times: list[str]
) -> None:
    zone = ZoneInfo("Europe/Berlin")
    first = datetime.fromisoformat(f"{day}T01:00").replace(tzinfo=zone)
    last = datetime.fromisoformat(f"{day}T03:59").replace(tzinfo=zone)
    found = berlin(cron).list_times_between(first, last, 9)
    assert [at.astimezone(zone).isoformat("T", "minutes") for at in found] == [
        f"{day}T{time}" for time in times
    ]


@given(
    every=st.integers(60, 90_000),
    begin=st.integers(-500_000, 500_000),
    length=st.integers(0, 500_000),
    most=st.integers(1, 9),
)
def test_an_interval_counts_from_its_start(every: int, begin: int, length: int, most: int) -> None:
    start = datetime(2026, 3, 28, tzinfo=UTC)
    first = start + timedelta(seconds=begin)
    until = first + timedelta(seconds=length)
    calendar = Calendar(cron="", every=every, zone="UTC", starts_at=start)
    all_of_it = [start + timedelta(seconds=n) for n in range(0, begin + length + 1, every)]
    expected = [at for at in all_of_it if first <= at <= until]
    assert calendar.list_times_between(first, until, 20_000) == expected
    assert calendar.list_newest_times(first, until, most) == expected[-most:]
    assert calendar.extend_start(first).list_times_between(start, until, 20_000) == [
        at for at in all_of_it if at <= until
    ]


def test_no_time_is_before_the_start_or_after_the_end() -> None:
    start, end = datetime(2026, 5, 1, tzinfo=UTC), datetime(2026, 5, 2, 10, tzinfo=UTC)
    one = Calendar(cron="0 12 * * *", every=None, zone="UTC", starts_at=start, ends_at=end)
    noon = datetime(2026, 5, 1, 12, tzinfo=UTC)
    assert list(one.after(LONG_AGO)) == one.list_newest_times(LONG_AGO, end, 9) == [noon]
    wider = one.extend_start(datetime(2026, 4, 30, tzinfo=UTC))
    assert wider.find_first_after(LONG_AGO) == noon - timedelta(days=1)
    assert wider.find_first_after(end) == noon + timedelta(days=1)


@pytest.mark.parametrize(
    ("cron", "why"),
    [
        ("0 0 30 2 *", "never comes: no month of 2 has a day 30"),
        ("0 0 31 4,6 *", "never comes: no month of 4,6 has a day 31"),
        ("0 0 * *", "needs five fields: minute, hour, day of month, month, day of week"),
        ("* * * * * *", "needs five fields: minute, hour, day of month, month, day of week"),
        ("61 * * * *", "has a wrong minute: it is 0 to 59"),
        ("0 24 * * *", "has a wrong hour: it is 0 to 23"),
        ("0 0 32 * *", "has a wrong day of month: it is 1 to 31, or L"),
        ("0 0 1 13 *", "has a wrong month: it is 1 to 12, or JAN to DEC"),
        ("0 0 * * MOO", "has a wrong day of week: it is 0 to 7, or SUN to SAT"),
        ("0 " * 99, "must have at most 100 characters"),
    ],
)
def test_an_expression_without_a_time_is_refused(cron: str, why: str) -> None:
    with pytest.raises(NeverComes, match=f"^{why}$"):
        check_cron(cron, "Europe/Berlin", LONG_AGO)
