"""The coordinator: one per claimed run, and the only appender to its journal.

It develops what it knows into a draft, commits the draft in one step, launches the effects whose
intents that step recorded, and waits for outcomes, signals or the loss of its lease. When nothing is
under way and nothing is planned, the same step lets go of the run: it ended, or it suspends at gates.
"""

import functools
import json
import logging
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import psycopg
from django.db import InterfaceError, OperationalError, close_old_connections, transaction

from runtime import database, journal, killpoints, leases, signals, steps
from runtime.core.continuation import Continuation, Phase, status_of
from runtime.core.decisions import EffectClass
from runtime.core.effects import AskModel, StartTool
from runtime.core.events import ToolFailed
from runtime.core.ids import ROOT, depth_of
from runtime.core.reducer import plan
from runtime.core.replay import Entry, recover
from runtime.draft import Draft, Work
from runtime.errors import LeaseLost, MailboxRaised
from runtime.executor import Executor, event_of, request_for
from runtime.heartbeat import Heartbeat, Held
from runtime.judging import Judge
from runtime.ports import (
    EffectHandler,
    Gatekeeper,
    ModelRequest,
    Outcome,
    ToolFault,
    ToolRequest,
)
from runtime.transactional import Handoff

log = logging.getLogger(__name__)

T = TypeVar("T")

OUT_OF_REACH = (
    psycopg.OperationalError,
    psycopg.InterfaceError,
    OperationalError,
    InterfaceError,
)
RETRY_SECONDS = 0.5
HOLD = timedelta(seconds=2)  # the longest wait for which a worker keeps a run
GRACE = timedelta(seconds=10)  # for what is under way when a run is cancelled


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What a worker process brings along to advance runs; one per process."""

    handler: EffectHandler
    gatekeeper: Gatekeeper
    executor: Executor
    heartbeat: Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrived:
    """An outcome, as it comes in from an effect's thread."""

    request: ModelRequest | ToolRequest
    outcome: Outcome


News = Arrived | Handoff | None


class Coordinator:
    """Advances one claimed run until it lets go of it."""

    def __init__(
        self,
        bench: Bench,
        held: Held,
        inbox: "queue.SimpleQueue[News]",
        now: Continuation,
    ) -> None:
        self._bench = bench
        self._held = held
        self._inbox = inbox
        self._now = now
        self._running: set[tuple[str, str | None]] = set()
        self._ready: list[Work] = []
        self._handed: list[Handoff] = []
        self._over = threading.Event()
        self._expired: set[UUID] = set()
        self._grace_ends: datetime | None = None
        self._mailbox = -1
        self._started = time.monotonic()
        self._judge = Judge(handler=bench.handler, gatekeeper=bench.gatekeeper, clock=self._clock)
        self._draft = self._new_draft()

    def work(self) -> None:
        for event in recover(self._now):
            self._draft.add(event)
        try:
            while not self._advance():
                self._launch()
                self._wait()
        finally:
            for _ in (*self._draft.work, *self._ready):
                self._bench.executor.give_back()
            self._drop_handed()

    def _advance(self) -> bool:
        """Commit what there is to say. True when the run was let go of."""
        self._write_handed()
        self._settle_cancelling()
        self._expire()
        while True:
            self._read_signals()
            self._draft.end_waits()
            self._persist(lambda: self._draft.develop(self._asking()))
            release = self._at_rest()
            try:
                if self._draft.events:
                    self._commit(release)
                elif release:
                    self._persist(self._let_go)
                self._ready.extend(self._draft.work)
                self._draft = self._new_draft()
                return release
            except MailboxRaised:
                self._held.mailbox = None

    def _at_rest(self) -> bool:
        """Whether nothing is under way or planned, and no wait is short enough to keep the worker for it."""
        now = self._draft.now
        if now.ended:
            return True
        if self._running or self._ready or self._draft.work or plan(now):
            return False
        soonest = min((wait.until for wait in now.waits()), default=None)
        return soonest is None or soonest - self._clock() > HOLD

    def _new_draft(self) -> Draft:
        wake = self._held.wake
        return Draft(
            self._now,
            self._bench.handler,
            self._judge,
            lambda: self._bench.executor.reserve(wake),
            self._clock,
        )

    def _asking(self) -> set[str]:
        """The frames whose model call is under way."""
        waiting = {work.frame for work in self._ready if isinstance(work, AskModel)}
        return waiting | {frame for frame, call in self._running if call is None}

    # What comes in

    def _wait(self) -> None:
        """Block for news or until something is due, then take everything that is there."""
        try:
            item = self._inbox.get(timeout=self._patience())
            while True:
                if self._held.lost.is_set():
                    raise LeaseLost
                self._take(item)
                item = self._inbox.get_nowait()
        except queue.Empty:
            return

    def _hand_in(self, handoff: Handoff) -> None:
        """From a tool's thread: a result that comes when nobody takes it any more is rolled back."""
        self._inbox.put(handoff)
        if self._over.is_set():
            handoff.drop()

    def _drop_handed(self) -> None:
        self._over.set()
        while True:
            for handoff in self._handed:
                handoff.drop()
            self._handed.clear()
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return
            if isinstance(item, Handoff):
                self._handed.append(item)

    def _take(self, item: News) -> None:
        match item:
            case None:
                return
            case Handoff():
                self._running.discard(_place(item.request))
                if item.waits_for_step:
                    self._handed.append(item)
                else:
                    self._add_outcome(item.request, item.outcome)
            case Arrived():
                self._running.discard(_place(item.request))
                self._add_outcome(item.request, item.outcome)

    def _add_outcome(self, request: ModelRequest | ToolRequest, outcome: Outcome) -> None:
        event = event_of(
            self._draft.now,
            request,
            outcome,
            at=self._clock(),
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
        if not moments:
            return None
        return max(0.0, (min(moments) - self._clock()).total_seconds())

    def _read_signals(self) -> None:
        """Read them when the mailbox is not as last read; a step that counts on it requires that count."""
        if self._held.mailbox is not None and self._held.mailbox == self._mailbox:
            return
        self._mailbox, found = self._persist(self._signals)
        self._held.mailbox = self._mailbox
        for signal in found:
            self._persist(functools.partial(self._draft.take, signal))

    def _signals(self) -> tuple[int, tuple[signals.Signal, ...]]:
        with database.pooled() as connection:
            return signals.read(connection, self._now.run)

    # What time brings

    def _expire(self) -> None:
        """Have time decide the gates whose time has come; the decision then comes as any other."""
        for pending in self._draft.now.pending:
            expired = pending.expires_at is not None and pending.expires_at <= self._clock()
            if expired and pending.gate not in self._expired:
                self._expired.add(pending.gate)
                self._persist(functools.partial(self._bench.gatekeeper.expire, pending.gate))
                self._held.mailbox = None

    def _settle_cancelling(self) -> None:
        """Give what is under way 10 s of grace, what was never started none, and note what is left unknown."""
        if self._draft.now.phase is not Phase.CANCELLING:
            return
        for work in self._ready:
            self._bench.executor.give_back()
            if isinstance(work, StartTool):
                self._draft.add(_not_started(work))
        self._ready.clear()
        if self._grace_ends is None:
            self._grace_ends = self._clock() + GRACE
        if self._clock() >= self._grace_ends:
            for event in recover(self._draft.now):
                self._draft.add(event)
            self._running.clear()

    # What goes out

    def _launch(self) -> None:
        """Start the effects whose intents are committed, as long as the lease surely lasts."""
        if self._now.phase is Phase.CANCELLING:
            if self._ready or self._grace_ends is None:
                self._held.wake()  # to settle them instead
            return
        while self._ready and self._held.has_budget():
            work = self._ready.pop(0)
            request = request_for(self._now, work)
            self._running.add(_place(request))
            if isinstance(request, ToolRequest) and request.effect is EffectClass.TRANSACTIONAL:
                self._bench.executor.launch_transactional(request, self._hand_in)
            else:
                self._bench.executor.launch(request, self._deliver(request))

    def _deliver(self, request: ModelRequest | ToolRequest) -> Callable[[Outcome], None]:
        return lambda outcome: self._inbox.put(Arrived(request=request, outcome=outcome))

    def _write_handed(self) -> None:
        """Commit each transactional result on its own, in its tool's transaction, before anything else."""
        while self._handed:
            handoff = self._handed.pop(0)
            later = self._draft.events
            self._draft = self._new_draft()
            self._add_outcome(handoff.request, handoff.outcome)
            step = self._step(self._draft, release=False)
            problem = handoff.write(step)
            if isinstance(problem, LeaseLost):
                raise problem
            if problem is None or self._persist(functools.partial(_written, step)):
                self._committed(step)
                self._draft = self._new_draft()
            else:
                self._draft = self._new_draft()
                fault = ToolFault(error=f"it was rolled back: {problem}", again=True)
                self._add_outcome(handoff.request, fault)
            for event in later:
                self._draft.add(event)

    def _commit(self, release: bool) -> None:
        step = self._step(self._draft, release)
        self._persist(lambda: self._write(step))
        self._committed(step)

    def _committed(self, step: steps.Step) -> None:
        killpoints.pass_by("committed", step.kind, step.depth)
        self._now = replace(self._draft.now, position=step.entry.position, head=step.entry.seal.mac)

    def _step(self, draft: Draft, release: bool) -> steps.Step:
        position = self._now.position + 1
        written = Entry(at=self._clock(), events=tuple(draft.events))
        entry = journal.seal(self._now.run, position, self._now.head, written)
        now = replace(draft.now, position=position, head=entry.seal.mac)
        return steps.Step(
            claim=self._held.claim,
            kind=draft.events[-1].type,
            depth=depth_of(getattr(draft.events[-1], "frame", ROOT)),
            entry=entry,
            status=status_of(now, held=not release),
            output=json.dumps(now.outcome) if now.phase is Phase.COMPLETED else None,
            reason=now.outcome if now.phase in (Phase.FAILED, Phase.CANCELLED) else None,
            ended=now.ended,
            release=release,
            due=_due(now),
            mailbox=self._mailbox,
            continuation=now if release and not now.ended else None,
            opened=draft.opened,
            taken=tuple(draft.taken),
            closed=tuple(draft.closed),
            signals=tuple(draft.signals),
        )

    def _write(self, step: steps.Step) -> None:
        draft = self._draft
        if not (draft.pictures or draft.closed):
            with database.pooled() as connection:
                steps.commit(connection, step, prepare=True)
            return
        close_old_connections()
        with transaction.atomic():
            if steps.written(database.djangos(), step):
                return
            if draft.pictures:
                self._bench.gatekeeper.open(draft.pictures)
            if draft.closed:
                self._bench.gatekeeper.close(
                    run=draft.now.run,
                    gates=draft.closed,
                    actor=None,
                    reason=draft.now.outcome or "",
                )
            steps.commit(database.djangos(), step, prepare=False)

    def _let_go(self) -> None:
        with database.pooled() as connection:
            done = leases.release(
                connection,
                self._held.claim,
                status=status_of(self._now, held=False),
                mailbox=self._mailbox,
                due=_due(self._now),
            )
            if done:
                return
            now = leases.read(connection, self._now.run)
        if (now.epoch, now.owner) == (self._held.claim.epoch, self._held.claim.owner):
            raise MailboxRaised
        raise LeaseLost

    def _persist(self, act: Callable[[], T]) -> T:
        """Try until Postgres is back: what this worker knows must not be lost with a connection."""
        while True:
            try:
                return act()
            except OUT_OF_REACH as exc:
                log.warning("run %s: Postgres is out of reach: %s", self._now.run, exc)
                if self._held.lost.wait(RETRY_SECONDS):
                    raise LeaseLost from exc
                close_old_connections()

    def _clock(self) -> datetime:
        """The claim's database time plus what has passed since, by this process's steady clock."""
        return self._held.claim.at + timedelta(seconds=time.monotonic() - self._started)


def _place(request: ModelRequest | ToolRequest) -> tuple[str, str | None]:
    return request.frame, request.call if isinstance(request, ToolRequest) else None


def _due(now: Continuation) -> datetime | None:
    """When a run that is let go of needs a worker again without anybody's signal."""
    moments = [wait.until for wait in now.waits()]
    moments += [pending.expires_at for pending in now.pending if pending.expires_at is not None]
    return None if now.ended else min(moments, default=None)


def _not_started(work: StartTool) -> ToolFailed:
    error = "the run was cancelled before this call was started"
    return ToolFailed(frame=work.frame, call=work.call, attempt=work.attempt, error=error)


def _written(step: steps.Step) -> bool:
    with database.pooled() as connection:
        return steps.written(connection, step)
