"""Runs on real Postgres that the test's own thread advances, with scripts (Rig) or real agents (Engine)."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.db import connection, transaction
from django.db.models import QuerySet
from django.utils import timezone
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.llm.rate_limits import RateLimits
from agents.registry import Registry
from runtime import broker
from runtime.control import interventions as cancelling
from runtime.control import interventions as pausing
from runtime.control.start import create
from runtime.control.user_actions import settle
from runtime.core.documents.codec import build_event_documents, decode_entry, decode_stored_text
from runtime.core.values.call_options import RetryPolicy
from runtime.core.values.enums import Decision, Verdict
from runtime.execution.claim import advance
from runtime.execution.effects.pool import EffectPool
from runtime.execution.heartbeat import ClaimedRun, Heartbeat
from runtime.execution.worker import RunSlots, WorkerContext
from runtime.models import Gate, JournalEntry, Run
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalPort
from runtime.ports.effects import EffectHandler, Outcome, ToolRequest, ToolResult
from runtime.reads.journal import read_stored_entries
from runtime.store import loading, pool
from runtime.store.leases import RunClaim
from runtime.store.pool import Connection
from runtime.upkeep import due_runs
from tests.support.fake_ports import (
    FakeAccess,
    FakeApprovals,
    FakeEffects,
    FakeTool,
    Script,
    ask,
    say,
    turns,
)
from tests.support.people import WITHIN, until

ADA = Actor(person="ada")
AT_REST = ("suspended", "completed", "failed", "cancelled", "quarantined")
LONG = 30.0  # seconds that a worker which must be replaced may take
RARELY = RetryPolicy(attempts=3, base=3600.0, ceiling=3600.0)
MakeBench = Callable[..., "Rig"]


def claim(
    connection: Connection, run: UUID, *, worker: UUID | None = None, isolated: bool = False
) -> RunClaim | None:
    """Claim the run, and load it for nothing."""
    found = loading.claim(connection, run, owner=uuid4(), worker=worker, isolated=isolated)
    return None if found is None else found[0]


def lose(*runs: UUID) -> None:
    """The worker of these runs is gone, and a sweeper has noticed."""
    with pool.open_own() as own:
        own.execute(
            """
            WITH lost AS (
                UPDATE runtime_run SET due_at = '2000-01-01' WHERE id = ANY(%s) RETURNING worker)
            UPDATE runtime_workerprocess SET lease_until = '2000-01-01' FROM lost WHERE id = lost.worker
            """,
            (list(runs),),
        )
        due_runs.dispatch_window(own)


def later(run: UUID) -> None:
    """Let all waits of the run be over."""
    with pool.open_own() as own:
        own.execute("UPDATE runtime_run SET due_at = clock_timestamp() WHERE id = %s", (run,))


def set_clock(monkeypatch: pytest.MonkeyPatch, clock: Callable[[], Any]) -> None:
    """Give workers this clock in place of the database's."""
    monkeypatch.setattr("runtime.execution.commit.StepWriter.read_clock", lambda self: clock())


def cancel(run: UUID, reason: str = "enough") -> None:
    cancelling.cancel(run=run, actor=ADA, reason=reason)


def pause(run: UUID, reason: str = "") -> None:
    pausing.pause(run=run, actor=ADA, reason=reason)


def resume(run: UUID, reason: str = "") -> None:
    pausing.resume(run=run, actor=ADA, reason=reason)


def events(run: UUID) -> list[dict[str, Any]]:
    """Everything in the journal of a run, in order."""
    rows = JournalEntry.objects.filter(run_id=run).order_by("position")
    return [
        event for body in bodies(rows) for event in build_event_documents(decode_entry(body).events)
    ]


def types(run: UUID) -> list[str]:
    return [event["type"] for event in events(run)]


def failing(times: int, outcome: Outcome) -> FakeTool:
    """A tool that fails so often, then succeeds."""

    def body(request: ToolRequest) -> Outcome:
        return outcome if request.attempt <= times else ToolResult(value=request.attempt)

    return FakeTool(body=body)


def start_run(agent: str, content: Any, requester: Actor = ADA, **more: Any) -> UUID:
    """Start a run, of which no worker knows yet."""
    with transaction.atomic():
        return create(agent=agent, input=content, requester=requester, **more).run


class Death(BaseException):
    """The end of a worker in the middle of a step."""


def die(*_: object) -> None:
    raise Death


@contextmanager
def at_failpoint(point: str, act: Callable[[], object]) -> Iterator[None]:
    """Call something when the block first passes this point, which it must."""
    left = [point]

    def hit(moment: str, kind: str, depth: int) -> None:
        if left == [f"{moment}:{kind}"]:
            left.clear()
            act()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("runtime.store.failpoints.hit", hit)
        yield
    assert not left


class OpenSlots(RunSlots):
    """Slots that leave the connection of the test's own thread open, as a new one takes long."""

    def release(self) -> None:
        if threading.current_thread() is threading.main_thread():
            self._free.put(None)
        else:
            super().release()


class HandDriven:
    """A worker without threads of its own for runs: the test's thread advances them."""

    def __init__(self, handler: EffectHandler, approvals: ApprovalPort) -> None:
        self.heartbeat = Heartbeat()
        self.heartbeat.start()
        self.context = WorkerContext(
            handler=handler,
            approvals=approvals,
            effect_pool=EffectPool(handler, slots=4, replace=lambda: self.heartbeat.retire(LONG)),
            heartbeat=self.heartbeat,
            slots=OpenSlots(),
        )

    def advance_once(self, run: UUID, *, isolated: bool = False) -> Run:
        advance(run, self.context, isolated=isolated)
        return Run.objects.get(id=run)

    def close(self) -> None:
        self.heartbeat.stop()
        self.context.effect_pool.close()


class Rig(HandDriven):
    """A worker and the user actions of the engine, for one set of fake agents."""

    def __init__(self, agents: dict[str, Script], tools: dict[str, FakeTool]) -> None:
        self.effects = FakeEffects(agents, tools)
        self.approvals = FakeApprovals()
        wiring.plug(approvals=self.approvals)
        super().__init__(self.effects, self.approvals)

    def start(self, agent: str, value: object = None) -> UUID:
        return start_run(agent, value or {})

    def advance(self, run: UUID) -> Run:
        """Advance the run as far as possible, also in isolation."""
        found = self.advance_once(run)
        if found.isolated:
            self.advance_once(run, isolated=True)
            found = self.advance_once(run)
        return found

    def decide(self, gate: UUID, verdict: Verdict, reason: str = "", result: object = None) -> None:
        decision = Decision(verdict=verdict, by="bea", reason=reason, result=result)
        with transaction.atomic():
            settle(gate=gate, decision=decision)

    def answer(
        self, run: UUID, verdict: Verdict = Verdict.APPROVE, reason: str = "", result: object = None
    ) -> Run:
        """Decide the run's oldest open gate, then advance the run."""
        self.decide(self.open_gates(run)[0].id, verdict, reason, result)
        return self.advance(run)

    def heard(self, place: int = 0) -> dict[str, Any]:
        """Return a result that was last told to a model."""
        result: dict[str, Any] = self.effects.models[-1].messages[-1]["results"][place]
        return result

    def open_gates(self, run: UUID) -> list[Gate]:
        return list(Gate.objects.filter(run=run, state="open").order_by("opened_at", "call"))

    def held(self, run: UUID) -> ClaimedRun:
        """Return this worker's claim of the run."""
        return next(one for one in self.heartbeat._claimed.values() if one.claim.run == run)


class Engine(HandDriven):
    """A worker with real agents; Ada starts runs, Bea decides."""

    def __init__(self, registry: Registry, rate_limits: RateLimits | None = None) -> None:
        self.approvals = FakeApprovals()
        super().__init__(AgentEffects(registry, rate_limits=rate_limits), self.approvals)

    def begin(self, agent: str, content: Any) -> Run:
        """A new run, as far as it goes without people."""
        return self.go_on(start_run(agent, content))

    def decide(self, run: Run, verdict: Verdict, reason: str = "", **where: str) -> Run:
        """Settle the one open gate, or the one with these columns, and go on."""
        gate = Gate.objects.get(run=run.id, state="open", **where).id
        with transaction.atomic():
            Run.objects.select_for_update().get(pk=run.id)  # else a heartbeat may be faster
            settle(gate=gate, decision=Decision(verdict=verdict, by="bea", reason=reason))
        return self.go_on(run.id)

    def go_on(self, run: UUID, within: float = WITHIN) -> Run:
        """Advance until only people can; waits between attempts are waited for, without a look at the database."""
        due = timezone.now()

        def rested() -> Run | None:
            nonlocal due
            if timezone.now() < due:
                return None
            found = self.advance_once(run)
            due = min(found.due_at or due, timezone.now() + timedelta(seconds=1))
            return found if found.status in AT_REST else None

        return until(rested, f"run {run} to rest", within)


@contextmanager
def engine_of(registry: Registry, rate_limits: RateLimits | None = None) -> Iterator[Engine]:
    engine = Engine(registry, rate_limits)
    yield engine
    engine.close()


def _give_each(hints: Sequence[broker.Message]) -> None:
    """Send hints as the sweeper does, for a test that watches them."""
    for run, queue in hints:
        broker.dispatch(run, queue)


@pytest.fixture
def everything_permitted() -> Iterator[None]:
    """Let everybody do everything, for tests whose people have no accounts."""
    real = wiring.resolve_access()
    wiring.plug(access=FakeAccess())
    yield
    wiring.plug(access=real)


@pytest.fixture
def by_hand(transactional_db: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Send no hints, since the test advances its runs by hand."""
    monkeypatch.setattr(broker, "dispatch", lambda run, queue="": None)


@pytest.fixture
def rig(
    by_hand: None, everything_permitted: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[MakeBench]:
    monkeypatch.setattr(broker, "send_all", _give_each)
    real = wiring.resolve_approvals()
    rigs: list[Rig] = []

    def make(agents: dict[str, Script], **tools: FakeTool) -> Rig:
        rigs.append(Rig(agents, tools))
        return rigs[-1]

    yield make
    wiring.plug(approvals=real)
    for one in rigs:
        one.close()


@pytest.fixture
def gated(rig: MakeBench) -> Rig:
    """A worker with an agent that asks for one call, which a person must approve, and then answers."""
    tool = FakeTool(gated=True, expires_in=3600.0)
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)


@pytest.fixture
def own(transactional_db: None) -> Iterator[Connection]:
    """A connection of the test's own."""
    with pool.open_own() as one:
        yield one


@pytest.fixture
def hints(rig: MakeBench, monkeypatch: pytest.MonkeyPatch) -> list[tuple[UUID, str]]:
    """Each hint that is sent: the run and the queue."""
    sent: list[tuple[UUID, str]] = []
    monkeypatch.setattr(
        broker, "dispatch", lambda run, queue=broker.RESUMED: sent.append((run, queue))
    )
    return sent


@pytest.fixture
def short_lease(settings: Settings) -> None:
    """Shorter than Postgres has been up, so that an ended lease may be taken."""
    settings.SIGNOFF_LEASE_SECONDS = 1.0


def bodies(rows: QuerySet[JournalEntry]) -> list[str]:
    return [body for _, body, _ in read_stored_entries(rows)]


def body(**where: Any) -> str:
    """The text of the one entry with these columns."""
    (found,) = bodies(JournalEntry.objects.filter(**where))
    return found


def mac(**where: Any) -> str:
    """The MAC of the one entry with these columns."""
    ((_, _, found),) = read_stored_entries(JournalEntry.objects.filter(**where))
    return found


def stored_texts() -> str:
    """Every text of every table, with the entries of the journal as they were written."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
        tables = [name for (name,) in cursor.fetchall()]
        rows = []
        for table in tables:
            cursor.execute(f'SELECT * FROM "{table}"')
            rows += [str(row) for row in cursor.fetchall()]
        cursor.execute("SELECT body FROM runtime_journalentry")
        rows += [decode_stored_text(body) for (body,) in cursor.fetchall()]
    return "\n".join(rows)
