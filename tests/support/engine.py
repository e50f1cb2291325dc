"""A bench whose agents are scripts, on real Postgres."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from uuid import UUID, uuid4

import pytest
from django.db import transaction
from pytest_django import Settings

from runtime.broker import dispatch
from runtime.control.settle import settle
from runtime.control.start import create
from runtime.core.enums import Decision, Verdict
from runtime.execution.claim import advance
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import ClaimedRun, Heartbeat
from runtime.execution.runner import WorkerContext
from runtime.models import Gate, Run
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import loading, pool
from runtime.store.leases import Claim
from runtime.store.pool import Connection
from runtime.upkeep import due_runs
from tests.support.fake_ports import (
    FakeAccess,
    FakeEffects,
    FakeGatekeeper,
    FakeTool,
    Script,
)

ADA = Actor(person="ada")
LONG = 30.0  # seconds that a worker which must be replaced may take
MakeBench = Callable[..., "Rig"]


def claim(
    connection: Connection, run: UUID, *, worker: UUID | None = None, isolated: bool = False
) -> Claim | None:
    """Claim the run, and load it for nothing."""
    found = loading.claim(connection, run, owner=uuid4(), worker=worker, isolated=isolated)
    return None if found is None else found[0]


def lose(*runs: UUID) -> None:
    """The worker of these runs is gone, and a sweeper has noticed."""
    with pool.own() as own:
        own.execute(
            "UPDATE runtime_run SET lease_until = '2000-01-01', due_at = '2000-01-01' WHERE id = ANY(%s)",
            (list(runs),),
        )
        due_runs.look(own)


class Rig:
    """One worker's bench and the doors of the engine, for one set of fake agents."""

    def __init__(self, agents: dict[str, Script], tools: dict[str, FakeTool]) -> None:
        self.effects = FakeEffects(agents, tools)
        self.gatekeeper = FakeGatekeeper()
        wiring.plug(gatekeeper=self.gatekeeper)
        self.heartbeat = Heartbeat()
        self.heartbeat.start()
        self.bench = WorkerContext(
            handler=self.effects,
            gatekeeper=self.gatekeeper,
            effect_pool=EffectPool(
                self.effects, slots=4, replace=lambda: self.heartbeat.retire(LONG)
            ),
            heartbeat=self.heartbeat,
        )

    def start(self, agent: str, value: object = None) -> UUID:
        with transaction.atomic():
            return create(agent=agent, input=value or {}, requester=ADA).run

    def advance(self, run: UUID) -> Run:
        """As far as it goes, also if it is tried in a process of its own on the way."""
        if self.advance_once(run).isolated:
            advance(run, self.bench, isolated=True)
            advance(run, self.bench)
        return Run.objects.get(id=run)

    def advance_once(self, run: UUID) -> Run:
        """As far as one ordinary worker takes it."""
        advance(run, self.bench)
        return Run.objects.get(id=run)

    def decide(self, gate: UUID, verdict: Verdict, reason: str = "", result: object = None) -> None:
        decision = Decision(verdict=verdict, by="bea", reason=reason, result=result)
        with transaction.atomic():
            settle(gate=gate, decision=decision)

    def open_gates(self, run: UUID) -> list[Gate]:
        return list(Gate.objects.filter(run=run, state="open").order_by("opened_at", "call"))

    def held(self, run: UUID) -> ClaimedRun:
        """What this worker knows of a run that it has."""
        return next(one for one in self.heartbeat._held.values() if one.claim.run == run)

    def close(self) -> None:
        self.heartbeat.stop()
        self.bench.effect_pool.close()


def _give_each(hints: Sequence[dispatch.Hint]) -> None:
    """As the sweeper sends them, for a test that watches what is hinted at."""
    for run, queue in hints:
        dispatch.hint(run, queue)


@contextmanager
def _everything_permitted() -> Iterator[None]:
    real = wiring.access()
    wiring.plug(access=FakeAccess())
    yield
    wiring.plug(access=real)


@pytest.fixture
def everything_permitted() -> Iterator[None]:
    """Let everybody do everything, for tests whose people have no accounts."""
    with _everything_permitted():
        yield


@pytest.fixture
def rig(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeBench]:
    """Make rigs; hints go nowhere, since these tests advance by hand."""
    monkeypatch.setattr(dispatch, "hint", lambda run, queue="": None)
    monkeypatch.setattr(dispatch, "send_all", _give_each)
    real = wiring.gatekeeper()
    rigs: list[Rig] = []

    def make(agents: dict[str, Script], **tools: FakeTool) -> Rig:
        rigs.append(Rig(agents, tools))
        return rigs[-1]

    with _everything_permitted():
        yield make
    wiring.plug(gatekeeper=real)
    for one in rigs:
        one.close()


@pytest.fixture
def short_lease(settings: Settings) -> None:
    """Shorter than Postgres has been up, so that an ended lease may be taken."""
    settings.ABEYANCE_LEASE_SECONDS = 1.0
