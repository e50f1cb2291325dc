"""Schedules start each time once, for their owner, also if sweepers die; and the acts of people on them."""

import json
import threading
from datetime import timedelta
from typing import Any, cast
from unittest.mock import Mock

import pytest
from psycopg import OperationalError

from approvals.models import Approval
from approvals.people import accounts
from approvals.rules.policy import Group
from runtime.control.verification import verify
from runtime.errors import (
    Forbidden,
    InvalidInput,
    NoSuchSchedule,
    RequestError,
    ScheduleEnded,
    Tampered,
)
from runtime.models import Occurrence, Run, Trigger, TriggerAct
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import occurrences
from runtime.store.tables.trigger_rows import TriggerKind
from runtime.triggers import changes, firing, listing, schedule_definition
from tests.support import seeds
from tests.support.costs import blocks_of
from tests.support.engine import ADA, events
from tests.support.office import BEA, Office, refused
from tests.support.threads import together
from tests.triggers.conftest import HOUR, NOON, SAID, Clock, told

ADMIN = Actor(person="admin")


def test_a_time_starts_one_run_of_its_owner(clock: Clock) -> None:
    made = clock.make(thread="talk")
    clock.sweep(NOON - timedelta(seconds=1))
    assert told(made) == []
    clock.sweep(NOON)
    clock.sweep(NOON)
    assert told(made) == [("0", "started", "")]
    run = Run.objects.get()
    assert (run.agent, run.requester, run.status) == ("hr_onboarding", "ada", "queued")
    assert run.business_key == f"Hourly 2026-05-01T12:00:00+00:00 ({made.hex[-12:]})"
    assert json.loads(run.input) == {"day": "2026-05-01", "note": "for 2026-05-01T14:00:00+02:00"}
    assert run.thread == "talk"
    assert (run.due_at is not None, verify(run.id).is_consistent) == (True, True)
    shown = listing.read_one(TriggerKind.SCHEDULE, made, ADA)
    assert (shown.history[0].run, shown.state) == (run.id, "active")
    assert shown.next_times == tuple(NOON + n * HOUR for n in range(1, 6))


def test_two_sweepers_at_once_start_each_time_once(clock: Clock) -> None:
    made = [clock.make(name=f"no. {n}", overlap="allow", missed="all") for n in range(12)]
    clock.at = NOON + 2 * HOUR
    barrier = threading.Barrier(2)

    def sweep() -> None:
        barrier.wait()
        with pool.open_own() as own:
            firing.fire_schedules(own, threading.Event())

    together([sweep] * 2)
    assert {tuple(state for _, state, _ in told(one)) for one in made} == {("started",) * 3}
    assert Run.objects.count() == 36


def test_a_clock_that_jumps_back_repeats_nothing(clock: Clock) -> None:
    made = clock.make()
    for at in (NOON, NOON - HOUR, NOON, NOON + HOUR / 2, NOON - HOUR):
        clock.sweep(at)
    clock.end(made)
    other = {**SAID, "input": {"day": "today"}}
    changes.change(
        TriggerKind.SCHEDULE, id=made, sent=other, actor=ADA
    )  # so that noon is the next time again
    clock.sweep(NOON)
    assert (told(made), Run.objects.count()) == ([("0", "completed", "")], 1)


def test_missed_and_overlapping_times_are_in_the_history(clock: Clock) -> None:
    made = clock.make()
    clock.sweep(NOON + 2.5 * HOUR)
    assert told(made) == [
        ("0", "skipped", "missed"),
        ("1", "skipped", "missed"),
        ("2", "started", ""),
    ]
    clock.sweep(NOON + 3 * HOUR)
    assert told(made)[-1] == ("3", "skipped", schedule_definition.OVERLAPS)
    clock.end(made, "failed")
    clock.sweep(NOON + 4 * HOUR)
    assert told(made)[-1] == ("4", "started", "")
    failure = listing.read_one(TriggerKind.SCHEDULE, made, ADA).last_failure
    assert failure is not None
    assert (failure.at, failure.state) == (NOON + 2 * HOUR, "failed")


def test_open_times_and_the_last_failure_are_found_without_the_whole_history(clock: Clock) -> None:
    made = clock.make()
    clock.sweep(NOON)
    clock.end(made, "failed")
    clock.sweep(NOON + HOUR)
    rows = (
        Occurrence(
            trigger=made,
            number=occurrences.compute_number(NOON + n * HOUR),
            at=NOON + n * HOUR,
            kind="scheduled",
            state="completed",
        )
        for n in range(2, 5_000)
    )
    Occurrence.objects.bulk_create(rows)
    blocks = list[int]()

    class Explaining:
        def execute(self, sql: str, parameters: Any) -> Any:
            blocks.append(blocks_of(pool.use_django_connection(), sql, parameters))
            return pool.use_django_connection().execute(sql, parameters)

    pool.use_django_connection().execute("ANALYZE runtime_occurrence")
    found = occurrences.find_last_failure(cast("Any", Explaining()), made)
    assert found is not None
    assert found.at == NOON
    assert occurrences.open_times(cast("Any", Explaining()), made).running == 1
    assert max(blocks) < 40  # the history has more than 60, and earlier tests left dead rows


def test_those_who_made_it_decide_in_none_of_its_runs(clock: Clock, office: Office) -> None:
    """Dora, who reviews too, changed the schedule of Ada's; Cora pressed "Run now"."""
    for name in ("dora", "cora"):
        seeds.person(name, Group.ADMINS, Group.REVIEWERS)
    made = clock.make()
    changes.change(
        TriggerKind.SCHEDULE, id=made, sent={**SAID, "name": "Changed"}, actor=Actor(person="dora")
    )
    clock.sweep(NOON)
    clock.at += timedelta(seconds=1)
    run = changes.run_now(id=made, actor=Actor(person="cora"))
    assert sorted(Run.objects.get(id=run).origin) == ["ada", "cora", "dora"]
    assert events(run)[0]["makers"] == ["dora", "cora"]
    office.advance(run)
    assert Approval.objects.get(run=run).origin == ["ada", "dora", "cora"]
    codes = [refused(run, Actor(person=name)) for name in ("ada", "dora", "cora")]
    assert codes == ["requester", "origin", "origin"]
    assert office.approve(run).status == "completed"
    assert verify(run).is_consistent
    first = Run.objects.get(business_key__startswith=f"Changed {NOON.isoformat()}")
    assert (first.origin, verify(first.id).is_consistent) == (["ada", "dora"], True)
    Run.objects.filter(id=first.id).update(origin=["ada"])  # as a program could that writes to it
    office.advance(first.id)
    assert refused(first.id, Actor(person="dora")) == "origin"


def test_an_owner_without_the_right_starts_nothing(clock: Clock) -> None:
    made = clock.make()
    accounts.set_groups("ada", [], actor="admin")
    clock.sweep(NOON)
    ((_, state, reason),) = told(made)
    assert (state, reason, Run.objects.count()) == (
        "failed",
        "ada does not have the right runs:start.",
        0,
    )


def test_a_row_that_was_changed_in_postgres_starts_nothing(clock: Clock) -> None:
    """A schedule of another person's would be a way around four eyes."""
    made = clock.make()
    act = TriggerAct.objects.get()
    TriggerAct.objects.update(body=act.body.replace('"ada"', '"bea"'))
    clock.sweep(NOON)
    again = clock.at + firing.AFTER_ERROR
    assert (Run.objects.count(), Trigger.objects.get().due_at) == (0, again)
    assert "does not verify" in Trigger.objects.get().problem
    TriggerAct.objects.update(body=act.body)
    Trigger.objects.update(
        owner="bea", due_at=clock.at, not_before=None
    )  # who may start no runs either
    accounts.set_groups("bea", [Group.REQUESTERS], actor="admin")
    clock.sweep()
    assert (Run.objects.count(), Trigger.objects.get().due_at) == (0, again)
    with pytest.raises(Tampered, match="is not the signed one"):
        changes.change(
            TriggerKind.SCHEDULE, id=made, sent={**SAID, "input": {"day": "hers"}}, actor=BEA
        )
    with pytest.raises(Tampered, match="is not the signed one"):
        listing.read_one(TriggerKind.SCHEDULE, made, BEA)
    Trigger.objects.update(owner="ada", due_at=clock.at, not_before=None)
    clock.sweep()
    assert Run.objects.get().requester == "ada"
    assert told(made)[-1][1] == "started"
    assert Trigger.objects.get().problem == ""


def test_an_error_in_one_schedule_keeps_no_other_waiting(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, good = clock.make(), clock.make(name="good")
    handle = firing.handle

    def fail(connection: Any, row: Any, now: Any) -> bool:
        if row.id == bad:
            connection.execute("SELECT 1 / 0")  # ends the transaction around it
        return handle(connection, row, now)

    monkeypatch.setattr(firing, "handle", fail)
    clock.sweep(NOON)
    assert [len(told(one)) for one in (bad, good)] == [0, 1]
    monkeypatch.setattr(firing, "handle", handle)
    clock.sweep(NOON + timedelta(seconds=61))
    assert [len(told(one)) for one in (bad, good)] == [1, 1]
    monkeypatch.setattr(firing, "handle", Mock(side_effect=OperationalError("gone")))
    with pytest.raises(OperationalError):  # the loop tries again
        clock.sweep(NOON + HOUR)


def test_pause_resume_and_end(clock: Clock) -> None:
    made = clock.make(overlap="queue")
    clock.at = NOON  # due, and no sweeper has looked yet
    changes.pause(TriggerKind.SCHEDULE, id=made, actor=ADA)
    assert told(made) == [("0", "started", "")]
    clock.sweep(NOON + 2.5 * HOUR)
    assert listing.read_one(TriggerKind.SCHEDULE, made, ADA).next_times == ()
    assert [one.next_at for one in listing.read_list(TriggerKind.SCHEDULE, ADA)[0]] == [None]
    changes.resume(TriggerKind.SCHEDULE, id=made, actor=ADMIN)
    clock.sweep(NOON + 3 * HOUR)
    assert told(made)[1:] == [("3", "waiting", "")]
    changes.end_trigger(TriggerKind.SCHEDULE, id=made, actor=ADA)
    clock.end(made)
    clock.sweep(NOON + 9 * HOUR)
    assert told(made)[1:] == [("3", "skipped", "the schedule was ended")]
    shown = listing.read_one(TriggerKind.SCHEDULE, made, ADA)
    assert (shown.state, shown.next_times, shown.changeable) == ("ended", (), False)
    assert shown.makers == ("ada", "admin")  # who resumed it
    acts = [(one.act, one.by) for one in shown.acts]
    assert acts == [("ended", "ada"), ("resumed", "admin"), ("paused", "ada"), ("made", "ada")]
    with pytest.raises(ScheduleEnded):
        changes.run_now(id=made, actor=ADA)


def test_a_change_loses_no_time_that_came(clock: Clock) -> None:
    """It waits for its jitter. The schedule keeps it, or says why it does not."""
    said: dict[str, Any] = {"starts_at": "2026-05-01T00:00", "jitter": 3600}
    kept, paused = clock.make(**said), clock.make(**said)
    clock.sweep(NOON)
    assert (told(kept), told(paused)) == ([], [])
    changes.change(
        TriggerKind.SCHEDULE, id=kept, sent={**SAID, **said, "name": "Changed"}, actor=ADA
    )
    changes.pause(TriggerKind.SCHEDULE, id=paused, actor=ADA)
    clock.sweep(NOON + HOUR)
    assert told(kept)[0] == ("0", "started", "")
    assert told(paused) == [("0", "skipped", "the schedule was changed")]


def test_the_last_time_ends_it(clock: Clock) -> None:
    made = clock.make(ends_at="2026-05-01T14:30")
    clock.sweep(NOON)
    clock.sweep(NOON + 5 * HOUR)
    shown = listing.read_one(TriggerKind.SCHEDULE, made, ADA)
    assert (told(made), shown.state) == ([("0", "started", "")], "ended")
    assert shown.changeable
    changes.change(TriggerKind.SCHEDULE, id=made, sent=SAID, actor=ADA)
    assert listing.read_one(TriggerKind.SCHEDULE, made, ADA).next_times[0] == NOON + 6 * HOUR


def test_a_manual_run_is_started_once_for_its_click(clock: Clock) -> None:
    made = clock.make()
    clock.sweep(NOON)
    changes.pause(TriggerKind.SCHEDULE, id=made, actor=ADA)
    clicked = (NOON + timedelta(microseconds=17)).isoformat()
    runs = {changes.run_now(id=made, actor=ADA, at=clicked) for _ in range(2)}
    assert len(runs) == 1
    assert [state for _, state, _ in told(made)] == ["started", "started"]
    with pytest.raises(InvalidInput, match="is not today"):
        changes.run_now(id=made, actor=ADA, at="2026-04-01T00:00:00Z")


def test_a_back_fill_starts_the_times_of_its_range_one_by_one(clock: Clock) -> None:
    made = clock.make()
    clock.sweep(NOON)
    clock.sweep(NOON + HOUR)
    clock.end(made)
    day = {"first": "2026-05-01T12:00", "until": "2026-05-01T15:00"}  # 10 to 13 in UTC
    assert changes.backfill(id=made, **day, actor=ADA) == 2
    clock.sweep(clock.at + timedelta(seconds=2))
    assert [state for _, state, _ in told(made)] == ["started", "waiting", "completed", "skipped"]
    clock.end(made)
    clock.sweep(clock.at + timedelta(seconds=2))
    assert [state for _, state, _ in told(made)] == ["completed", "started", "completed", "skipped"]
    assert json.loads(Run.objects.get(business_key__contains="T11").input)["day"] == "2026-05-01"
    with pytest.raises(InvalidInput, match="gives no time that the schedule has not had"):
        changes.backfill(id=made, **day, actor=ADA)


def test_who_back_fills_stays_in_the_origin(clock: Clock) -> None:
    """Her name in the row of the time is not signed, and another person's "Run now" at that time replaces it."""
    dora = seeds.person("dora", Group.ADMINS)
    made = clock.make()
    eleven = "2026-05-01T11:00Z"
    assert changes.backfill(id=made, first=eleven, until=eleven, actor=dora) == 1
    run = changes.run_now(id=made, actor=ADA, at=eleven)
    assert Run.objects.get().origin == ["ada", "dora"]
    assert events(run)[0]["makers"] == ["dora"]


DEEP = json.loads("[" * 480 + "]" * 480)
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"cron": "0 0 30 2 *"}, "cron: never comes: no month of 2 has a day 30"),
    ({"cron": "*/7"}, "cron: needs five fields: minute, hour, day of month, month, day of week"),
    ({"cron": ""}, "cron: is required, or an interval"),
    ({"every": 3600}, "every: cannot be given together with cron"),
    ({"cron": "", "every": 5}, "every: must be a whole number of seconds from 60 to 31622400"),
    ({"zone": "Mars/Olympus"}, "zone: must be a time zone such as Europe/Berlin"),
    ({"zone": "../../etc/passwd"}, "zone: must be a time zone such as Europe/Berlin"),
    ({"starts_at": "2026-06-02", "ends_at": "2026-06-01"}, "ends_at: must be after the start"),
    ({"ends_at": "2026-05-01T12:00"}, "ends_at: must be after the start"),
    ({"ends_at": "2026-05-01T13:40"}, "ends_at: is before the first time"),
    ({"starts_at": "soon"}, "starts_at: must be a time such as 2026-11-24T09:00"),
    ({"starts_at": "9999-12-31"}, "starts_at: must be between 2000 and 2200"),
    ({"missed": "maybe"}, "missed: must be one of skip, once, all"),
    ({"overlap": "maybe"}, "overlap: must be one of skip, queue, allow"),
    ({"thread": "x" * 201}, "thread: must have at most 200 characters"),
    ({"jitter": 3601}, "jitter: must be a whole number of seconds from 0 to 3600"),
    ({"name": " "}, "name: must have 1 to 100 characters"),
    ({"name": "\ud800"}, "name: contains a character that is not text"),
    ({"agent": "gone"}, "agent: There is no agent with this name."),
    ({"input": {}}, "input.day: is missing: it must be string · at most 10 characters"),
    ({"input": {"day": DEEP}}, "input.day" + "[0]" * 64 + ": nested deeper than 64"),
    ({"input": {"day": "on {{date}}"}}, "input.day: must have at most 10 characters"),
]


def test_a_wrong_field_is_named(clock: Clock, subtests: pytest.Subtests) -> None:
    for sent, why in WRONG:
        with subtests.test(why):
            with pytest.raises(RequestError) as caught:
                clock.make(**sent)
            assert f"{caught.value.field}: {caught.value.detail}" == why
    assert not Trigger.objects.exists()


def test_a_back_fill_has_a_limit(clock: Clock) -> None:
    made = clock.make(cron="* * * * *")
    with pytest.raises(InvalidInput, match="gives more than 1000 times") as caught:
        changes.backfill(id=made, first="2020-01-01", until="2026-05-01", actor=ADA)
    assert caught.value.field == "until"
    for first, until, why in (
        ("2026-05-02", "2026-05-01", "must not be before"),
        ("2026-05-01", "2026-05-02", "must not be in the future"),
        (None, "2026-05-02", "is required"),
    ):
        with pytest.raises(InvalidInput, match=why):
            changes.backfill(id=made, first=first, until=until, actor=ADA)
    assert not Occurrence.objects.exists()


def test_only_the_owner_and_admins_see_it(clock: Clock) -> None:
    made = clock.make()
    for actor in (BEA, Actor(person="cyril")):
        with pytest.raises(NoSuchSchedule):
            listing.read_one(TriggerKind.SCHEDULE, made, actor)
        assert listing.read_list(TriggerKind.SCHEDULE, actor) == ([], False)
    other = seeds.person("otto", Group.REQUESTERS)
    with pytest.raises(NoSuchSchedule):
        changes.pause(TriggerKind.SCHEDULE, id=made, actor=other)
    with pytest.raises(NoSuchSchedule):
        changes.create(TriggerKind.SCHEDULE, sent=SAID, actor=other, form=made)
    with pytest.raises(Forbidden):
        clock.make(BEA)
    assert [row.id for row in listing.read_list(TriggerKind.SCHEDULE, ADMIN)[0]] == [made]
    assert listing.read_one(TriggerKind.SCHEDULE, made, ADMIN).changeable
