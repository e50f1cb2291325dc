"""The coordinator: one per claimed run, the only appender to its journal.

It develops what it knows into a draft, commits the draft in one step, launches the effects whose
intents that step recorded, and waits for outcomes, signals or the loss of its lease. When nothing is
under way and nothing is planned, the same step lets go of the run: it ended, or it suspends at gates.
"""

import functools
import queue
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from runtime.core.contents import FilledIn
from runtime.core.continuation import Continuation, Phase
from runtime.core.decisions import EffectClass
from runtime.core.effects import AskModel, StartTool
from runtime.core.errors import NotJson
from runtime.core.events import RetryScheduled, ToolFailed
from runtime.core.planning import plan
from runtime.core.replay import recover
from runtime.core.unkept import journaled
from runtime.errors import LeaseLost
from runtime.execution.admission.admit import Judge
from runtime.execution.admission.versions import Refusals, Skews, require_agents, writes
from runtime.execution.commit import Loaded, Scribe
from runtime.execution.concurrency import Seats
from runtime.execution.effects.handing_in import Attempt, hand_in
from runtime.execution.effects.perform import nothing_to_end
from runtime.execution.effects.pool import Executor, event_of, request_for
from runtime.execution.effects.transactional import Handoff
from runtime.execution.heartbeat import Heartbeat, Held
from runtime.execution.step import Draft
from runtime.execution.yielding import Tenure
from runtime.ports import (
    Abort,
    EffectHandler,
    Gatekeeper,
    ModelRequest,
    Outcome,
    ToolFault,
    ToolRequest,
)
from runtime.store import leases, ledger
from runtime.store.records import Changed, Work, changed
from runtime.store.steps import Result

HOLD = timedelta(seconds=2)  # the longest wait for which a worker keeps a run
GRACE = timedelta(seconds=10)  # for what is under way when a run is cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a worker process brings along to advance runs; one per process."""

    handler: EffectHandler
    gatekeeper: Gatekeeper
    executor: Executor
    heartbeat: Heartbeat
    refusals: Refusals = field(default_factory=Refusals)
    seats: Seats = field(default_factory=Seats)


Late = Callable[[Outcome], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """An outcome from an effect's thread. `late` records it beside the run if this worker cannot journal it."""

    request: ModelRequest | ToolRequest
    outcome: Outcome
    late: Late


News = Arrived | Handoff | None
Inbox = queue.SimpleQueue[News]


class Coordinator:
    """Advances one run until it lets go of it."""

    def __init__(
        self,
        bench: Bench,
        held: Held,
        inbox: Inbox,
        loaded: Loaded,
        skews: Skews | None,
    ) -> None:
        self._bench = bench
        self._skews = skews
        self._unadopted = skews  # added to each draft until a step with them is committed
        self._held = held
        self._inbox = inbox
        self._tenure = Tenure(held, bench.heartbeat.shift)
        self._scribe = Scribe(held, bench.seats, bench.gatekeeper, loaded, self._tenure)
        self._filled = FilledIn(self._scribe.content)
        self._running: dict[tuple[str, str | None], Abort] = {}
        self._ready: list[Work] = []
        self._handed: list[Handoff] = []
        self._taken: list[Arrived] = []  # outcomes that are not committed yet
        self._over = threading.Event()
        self._expired: set[UUID] = set()
        self._grace_ends: datetime | None = None
        self._judge = Judge(
            handler=bench.handler, gatekeeper=bench.gatekeeper, clock=self._scribe.clock
        )
        self._draft = self._new_draft()

    def work(self) -> None:
        for event in recover(self._scribe.now, writes(self._skews or {})):
            self._draft.add(event)
        try:
            while not self._advance():
                self._bench.executor.pass_on()
                self._launch()
                self._wait()
        finally:
            self._stop_asking()
            for work in (*self._draft.records.work, *self._ready):
                self._bench.executor.give_back(work)
            self._bench.executor.leave(self._held.wake)
            self._drop_handed()

    def _advance(self) -> bool:
        """Commit what there is to say. True when the run was let go of."""
        scribe = self._scribe
        self._write_handed()
        self._settle_cancelling()
        self._leave_ready()
        self._expire()
        given = self._draft.records.changes
        while True:
            if self._unadopted is not None:
                self._draft.adopt(self._unadopted)
            for signal in scribe.read_signals():
                scribe.persist(functools.partial(self._draft.take, signal))
            for late in scribe.late_outcomes(self._draft.now):
                self._draft.hear(late, scribe.settling)
            require_agents(self._draft.now, self._skews)
            self._draft.end_waits()
            scribe.persist(lambda: self._draft.develop(self._asking()))
            release = self._at_rest()
            try:
                result = self._commit(release)
            except NotJson:
                kept = tuple(_kept(scribe.now, one) for one in given)
                if kept == given:
                    raise
                given = kept
                self._draft_again(given)
                continue
            match result:
                case Result.WRITTEN:
                    self._unadopted = None
                    self._taken.clear()
                    self._ready.extend(self._draft.records.work)
                    self._draft = self._new_draft()
                    return release
                case Result.NEW_SIGNALS:
                    scribe.look_again()
                    self._draft_again(given)
                case Result.LOST:
                    raise LeaseLost

    def _commit(self, release: bool) -> Result:
        draft = self._draft
        if draft.records.changes:
            return self._scribe.commit(draft.records, draft.now, release=release)
        return self._scribe.let_go() if release else Result.WRITTEN

    def _draft_again(self, given: Sequence[Changed]) -> None:
        """Begin with what came in alone: a decision in the draft may have been taken back since it was read."""
        for work in self._draft.records.work:
            self._bench.executor.give_back(work)
        self._draft = self._new_draft()
        for change in given:
            self._draft.change(change)

    def _at_rest(self) -> bool:
        """Whether nothing is under way or planned, and no wait is short enough to keep the worker for it."""
        now = self._draft.now
        if now.ended or self._tenure.forfeited:
            return True
        if self._running or self._ready or self._draft.records.work:
            return False
        if self._tenure.ended(now):
            return True
        if plan(now):
            return False
        moments = [wait.until for wait in now.waits()]
        if self._scribe.next_signal is not None:
            moments.append(self._scribe.next_signal)
        soonest = min(moments, default=None)
        return soonest is None or soonest - self._scribe.clock() > HOLD

    def _new_draft(self) -> Draft:
        return Draft(
            self._scribe.now,
            self._bench.handler,
            self._judge,
            self._reserve,
            self._scribe.clock,
        )

    def _reserve(self, work: Work) -> bool:
        """Take a slot for something new."""
        return not self._tenure.ended(self._scribe.now) and self._bench.executor.reserve(
            work, self._held.wake
        )

    def _asking(self) -> set[str]:
        """The frames whose model call is under way."""
        waiting = {work.frame for work in self._ready if isinstance(work, AskModel)}
        return waiting | {frame for frame, call in self._running if call is None}

    # What comes in

    def _wait(self) -> None:
        """Block for news or until something is due, then take everything that is there."""
        try:
            item = self._next()
            while True:
                if self._held.lost.is_set():
                    raise LeaseLost
                self._take(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _next(self) -> News:
        """What came first. Nobody waits sitting. Raises queue.Empty when nothing came in time."""
        if self._inbox.empty():
            with self._bench.seats.left():
                return self._inbox.get(timeout=self._patience())
        return self._inbox.get_nowait()

    def _hand_in(self, handoff: Handoff) -> None:
        """From a tool's thread: a result that comes when nobody takes it any more is rolled back."""
        self._inbox.put(handoff)
        if self._over.is_set():
            handoff.drop()

    def _drop_handed(self) -> None:
        """Roll back transactional calls, and hand in the other outcomes that were not committed."""
        self._over.set()
        while True:
            for handoff in self._handed:
                handoff.drop()
            self._handed.clear()
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                break
            if isinstance(item, Handoff):
                self._handed.append(item)
            elif isinstance(item, Arrived):
                self._taken.append(item)
        for arrived in self._taken:
            arrived.late(arrived.outcome)

    def _take(self, item: News) -> None:
        match item:
            case None:
                return
            case Handoff():
                self._running.pop(_place(item.request), None)
                if item.waits_for_step:
                    self._handed.append(item)
                else:
                    self._add_outcome(item.request, item.outcome)
            case Arrived():
                self._running.pop(_place(item.request), None)
                self._taken.append(item)
                self._add_outcome(item.request, item.outcome)

    def _add_outcome(self, request: ModelRequest | ToolRequest, outcome: Outcome) -> None:
        self._tenure.get_on()
        event = event_of(
            self._draft.now,
            request,
            outcome,
            at=self._scribe.clock(),
            chance=random.random(),  # noqa: S311 - spreads retries, keeps no secret
        )
        self._draft.add(event)

    def _patience(self) -> float | None:
        """Seconds until a wait is over, a gate expires or a cancelled run's grace ends; None without any."""
        moments = [wait.until for wait in self._draft.now.waits()]
        moments += [
            pending.expires_at
            for pending in self._draft.now.pending
            if pending.expires_at is not None and pending.gate not in self._expired
        ]
        if self._grace_ends is not None:
            moments.append(self._grace_ends)
        if self._scribe.next_signal is not None:
            moments.append(self._scribe.next_signal)
        if not moments:
            return None
        return max(0.0, (min(moments) - self._scribe.clock()).total_seconds())

    # What time brings

    def _expire(self) -> None:
        """Have time decide the gates whose time has come; the decision then comes as any other."""
        for pending in self._draft.now.pending:
            expired = pending.expires_at is not None and pending.expires_at <= self._scribe.clock()
            if expired and pending.gate not in self._expired:
                self._expired.add(pending.gate)
                expire = functools.partial(self._bench.gatekeeper.expire, pending.gate)
                self._scribe.persist(expire)
                self._scribe.look_again()

    def _settle_cancelling(self) -> None:
        """Give what is under way 10 s of grace, what was never started none, and note what is left unknown."""
        if self._draft.now.phase is not Phase.CANCELLING:
            return
        for work in self._ready:
            self._bench.executor.give_back(work)
            if isinstance(work, StartTool):
                self._draft.add(not_started(work))
        self._ready.clear()
        if self._grace_ends is None:
            self._grace_ends = self._scribe.clock() + GRACE
            self._stop_asking()
        if self._scribe.clock() >= self._grace_ends:
            for event in recover(self._draft.now):
                self._draft.add(event)
            self._running.clear()

    def _leave_ready(self) -> None:
        """Leave calls whose intent is written and that have not started to the next worker, if this tenure has ended.

        A call whose intent is older than a lease gets a new one: "run again" would be offered too early.
        """
        ended = self._tenure.ended(self._scribe.now)
        leaving = [work for work in self._ready if ended or self._is_stale(work)]
        for work in leaving:
            self._bench.executor.give_back(work)
            if isinstance(work, StartTool):
                self._draft.add(left(work) if ended else too_late(work))
            self._ready.remove(work)

    def _is_stale(self, work: Work) -> bool:
        """Whether a call's intent is older than a lease, so that it must not start under that intent."""
        if not isinstance(work, StartTool):
            return False
        written = self._scribe.now.call(work.frame, work.call).started_at
        assert written is not None  # by its intent
        return self._scribe.clock() - written > timedelta(seconds=leases.lease_seconds())

    # What goes out

    def _launch(self) -> None:
        """Start the effects whose intents are committed, as long as the lease surely lasts."""
        if self._tenure.ended(self._scribe.now):
            if self._ready:
                self._held.wake()  # to leave them instead
            return
        if self._scribe.now.phase is Phase.CANCELLING:
            if self._ready or self._grace_ends is None:
                self._held.wake()  # to settle them instead
            return
        while self._ready and self._held.has_budget():
            if self._is_stale(self._ready[0]):
                self._held.wake()  # to leave it instead
                return
            request = request_for(self._scribe.now, self._ready[0], self._filled)
            self._ready.pop(0)
            self._note_spent(request)
            if isinstance(request, ToolRequest) and request.effect is EffectClass.TRANSACTIONAL:
                self._running[_place(request)] = nothing_to_end
                self._bench.executor.launch_transactional(request, self._hand_in)
            else:
                late = self._late(request)
                deliver = self._deliver(request, late)
                self._running[_place(request)] = self._bench.executor.launch(request, deliver, late)

    def _note_spent(self, request: ModelRequest | ToolRequest) -> None:
        """Record a used approval in the ledger: after the intent is committed, before the call starts."""
        if isinstance(request, ToolRequest):
            gate = self._scribe.now.call(request.frame, request.call).gate
            if gate is not None:
                ledger.note(ledger.spent(request.run, (gate, request.attempt)))

    def _stop_asking(self) -> None:
        """End the model calls that are under way; what had come of their replies comes in as any outcome."""
        for abort in self._running.values():
            abort()

    def _deliver(self, request: ModelRequest | ToolRequest, late: Late) -> Late:
        def deliver(outcome: Outcome) -> None:
            self._inbox.put(Arrived(request=request, outcome=outcome, late=late))
            if self._over.is_set():
                late(outcome)

        return deliver

    def _late(self, request: ModelRequest | ToolRequest) -> Late:
        """Return the function that records an outcome for which this coordinator no longer waits."""
        worker = self._held.claim.worker
        if not isinstance(request, ToolRequest) or worker is None:
            return lambda outcome: None
        started_at = self._scribe.now.call(request.frame, request.call).started_at
        assert started_at is not None  # by its intent
        attempt = Attempt(request=request, started_at=started_at, worker=worker)
        return functools.partial(hand_in, attempt)

    def _write_handed(self) -> None:
        """Commit each transactional result on its own, in its tool's transaction, before anything else."""
        while self._handed:
            handoff = self._handed[0]
            later = self._draft
            self._draft = self._new_draft()
            self._add_outcome(handoff.request, handoff.outcome)
            problem = self._commit_handed(handoff)
            self._handed.pop(0)
            self._draft = self._new_draft()
            if problem is not None:
                fault = ToolFault(error=f"it was rolled back: {problem}", again=True)
                self._add_outcome(handoff.request, fault)
            for change in later.records.changes:
                self._draft.change(change)

    def _commit_handed(self, handoff: Handoff) -> BaseException | None:
        """What went wrong, if the tool's writes were rolled back. Raises LeaseLost."""
        try:
            return self._scribe.commit_handed(self._draft.records, self._draft.now, handoff)
        except NotJson as exc:
            handoff.drop()
            return exc


def _kept(now: Continuation, change: Changed) -> Changed:
    """The same with an event that a journal takes."""
    event = journaled(now, change.event)
    return change if event is change.event else changed(event)


def _place(request: ModelRequest | ToolRequest) -> tuple[str, str | None]:
    return request.frame, request.call if isinstance(request, ToolRequest) else None


def not_started(work: StartTool) -> ToolFailed:
    """What becomes of a call whose intent is written when its run is cancelled."""
    error = "the run was cancelled before this call was started"
    return ToolFailed(frame=work.frame, call=work.call, attempt=work.attempt, error=error)


def left(work: StartTool) -> RetryScheduled:
    """What becomes of a call whose intent is written by a worker that must not start it any more."""
    return _not_made(work, "the worker released the run before the call started")


def too_late(work: StartTool) -> RetryScheduled:
    """The event for a call that must not start, because writing its intent took too long."""
    return _not_made(work, "it could not start in time, because Postgres was out of reach")


def _not_made(work: StartTool, error: str) -> RetryScheduled:
    return RetryScheduled(
        frame=work.frame, call=work.call, attempt=work.attempt, cause="lost", error=error
    )
