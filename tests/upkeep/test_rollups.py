"""The counting rounds of the sweeper: each reads the changed runs alone, and together they count all."""

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any, cast
from uuid import UUID

import pytest

from approvals.models import Approval
from runtime import broker
from runtime.control.interventions import retry
from runtime.models import DailyUsage, Run, RunUsage, SweeperLoop, UncountedRun
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure, ModelRequest, Outcome, ToolRequest, ToolResult
from runtime.store.pool import Connection
from runtime.upkeep import rollups
from runtime.upkeep.alarm import Alarm
from tests.support.costs import blocks_of
from tests.support.engine import Death, at_failpoint, die, lose
from tests.support.fake_ports import FakeTool, Script, ask, say, turns
from tests.support.office import BEA, NEWCOMER, Office
from tests.support.seeds import decide

Act = Callable[[Office, random.Random], None]
Counts = tuple[list[Any], list[Any]]


class Killed(BaseException):
    """The end of a sweeper in the middle of a round."""


@pytest.fixture
def priced(office: Office, monkeypatch: pytest.MonkeyPatch) -> Office:
    """An agent whose replies cost 7 millionths of a dollar each, and rounds that do not overlap."""
    account, mail = ("account_agent", NEWCOMER), ("send_welcome_mail", {"username": "newhire"})
    _price(office, turns(*[ask(account), ask(mail)] * 3, say("Three are on board.")))
    monkeypatch.setattr(rollups, "OVERLAP", timedelta(0))
    monkeypatch.setattr(rollups, "RUNS", 2)
    monkeypatch.setattr(broker, "send_all", lambda hints: None)
    return office


@pytest.mark.parametrize("seed", range(3))
def test_rounds_count_what_one_round_from_nothing_counts(
    priced: Office, own: Connection, seed: int
) -> None:
    chance = random.Random(seed)
    acts: list[Act] = [_start, _approve, _approve, _die, _release, _advance, _retry]
    rounds: list[Callable[[Connection, random.Random], None]] = [
        _finish_round,
        _stop_round,
        _kill_round,
    ]
    for _ in range(15):
        chance.choice(acts)(priced, chance)
        chance.choice(rounds)(own, chance)
    _finish_round(own, chance)
    assert not UncountedRun.objects.exists()
    counts = _counts()
    for table in (RunUsage, DailyUsage, SweeperLoop):
        cast("Any", table).objects.all().delete()
    _finish_round(own, chance)
    assert _counts() == counts
    assert sum(row.replies for row in RunUsage.objects.all()) > 0


def test_a_run_is_counted_while_a_worker_has_it(priced: Office, own: Connection) -> None:
    counted: list[Any] = []

    def body(request: ToolRequest) -> ToolResult:
        priced.heartbeat._beat(own)
        _finish_round(own)
        query = "SELECT replies FROM runtime_runusage WHERE run_id = %s"
        counted.append(own.execute(query, (request.run,)).fetchone())
        return ToolResult(value={"id": 1})

    run = priced.start()
    _finish_round(own)
    before = RunUsage.objects.get(pk=run).replies
    priced.effects.tools["send_welcome_mail"] = FakeTool(body=body)
    priced.approve(run)
    assert counted == [(before + 1,)]


@pytest.mark.slow
def test_a_round_costs_the_same_beside_ten_times_as_many_unchanged_runs(
    priced: Office, own: Connection
) -> None:
    costs = []
    for number in (300, 2_700):
        own.execute(
            """
            INSERT INTO runtime_run (id, agent, requester, input, status, position, idle_since)
            SELECT gen_random_uuid(), 'a', 'ada', repeat('x', 500), 'suspended', 5,
                now() - n * interval '1 minute'
            FROM generate_series(1, %s) AS n
            """,
            (number,),
        )
        _finish_round(own)
        own.execute("VACUUM ANALYZE runtime_run")
        run = priced.start()
        costs.append(_blocks(own))
        assert UncountedRun.objects.get().run_id == run
    assert costs[1] < costs[0] + 10


def _price(office: Office, script: Script) -> None:
    """Give each reply of the first agent usage and a price."""

    def reply(request: ModelRequest) -> Outcome:
        outcome: Any = script(request)
        usage = {"usage": {"input_tokens": 5}, "cost": 7, "model": "model-a"}
        return cast(
            "Outcome", outcome if isinstance(outcome, ModelFailure) else replace(outcome, **usage)
        )

    office.effects.agents["hr_onboarding"] = reply


def _start(office: Office, chance: random.Random) -> None:
    office.start(advanced=chance.random() < 0.8)


def _approve(office: Office, chance: random.Random) -> None:
    if run := _waiting_run(chance):
        _decide(run)
        office.advance(run)


def _die(office: Office, chance: random.Random) -> None:
    """The worker of a run dies, some replies after the last round."""
    if run := _waiting_run(chance):
        _decide(run)
        with at_failpoint("committed:ToolReturned", die), suppress(Death):
            office.advance(run)


def _release(office: Office, chance: random.Random) -> None:
    """The sweeper notices that workers have died."""
    lose(*Run.objects.filter(owner__isnull=False).values_list("id", flat=True))


def _advance(office: Office, chance: random.Random) -> None:
    for run in Run.objects.filter(owner=None, due_at__isnull=False).order_by("id"):
        office.advance(run.id)


def _retry(office: Office, chance: random.Random) -> None:
    """A run fails after some replies, and is started again."""
    script = office.effects.agents["hr_onboarding"]
    _price(office, turns(ask(("account_agent", NEWCOMER)), ModelFailure(error="no")))
    run = office.start()
    _decide(run)
    office.advance(run)
    office.effects.agents["hr_onboarding"] = script
    retry(run=run, reason="Again.", actor=Actor(person="ada"))


def _finish_round(connection: Connection, *_: object) -> None:
    rollups.roll_up(connection, threading.Event())
    Alarm("rollups").record_success(connection, took=0.0)


def _stop_round(connection: Connection, chance: random.Random) -> None:
    """The sweeper ends in the middle of a round, in order, and the round counts as complete."""
    stop = threading.Event()
    with pytest.MonkeyPatch.context() as patch:
        _interrupt(patch, chance, stop.set)
        rollups.roll_up(connection, stop)
    Alarm("rollups").record_success(connection, took=0.0)


def _kill_round(connection: Connection, chance: random.Random) -> None:
    def kill() -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        _interrupt(patch, chance, kill)
        rollups.roll_up(connection, threading.Event())


def _interrupt(patch: pytest.MonkeyPatch, chance: random.Random, act: Any) -> None:
    """Call something before or after a run is counted."""
    count, point = rollups._count_run, chance.choice(("before", "after"))

    def interrupted(*args: Any) -> bool:
        if point == "before":
            act()
        result = count(*args)
        if point == "after":
            act()
        return result

    patch.setattr(rollups, "_count_run", interrupted)


def _waiting_run(chance: random.Random) -> UUID | None:
    runs = list(Run.objects.filter(status="suspended").order_by("id").values_list("id", flat=True))
    return chance.choice(runs) if runs else None


def _decide(run: UUID) -> None:
    decide(Approval.objects.get(run=run, status="pending"), BEA)


def _counts() -> Counts:
    return (
        sorted(RunUsage.objects.values_list()),
        sorted(
            DailyUsage.objects.values_list(
                "day", "agent", "model", "requester", "replies", "micros"
            )
        ),
    )


def _blocks(connection: Connection) -> int:
    """The blocks that the listing of changed runs reads."""
    since, claimed = cast("Any", connection.execute(rollups._BEGAN).fetchone())
    return blocks_of(connection, rollups._LIST, {"since": since, "claimed": claimed})
