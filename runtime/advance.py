"""The coordinator: one per claimed run, and the only appender to its journal.

It develops what it knows into a draft, commits the draft in one step, launches the effects whose
intents that step recorded, and waits for outcomes, signals or the loss of its lease. When nothing is
under way and nothing is planned, the same step lets go of the run: it ended, or it suspends at gates.
"""

import json
import logging
import queue
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

import psycopg
from django.db import OperationalError, close_old_connections, transaction

from runtime import continuations, database, journal, leases, signals, steps
from runtime.core.continuation import Continuation, Phase, status_of
from runtime.core.effects import AskModel
from runtime.core.errors import NewerSchema
from runtime.core.reducer import plan
from runtime.core.replay import Entry, recover
from runtime.draft import Draft, Work
from runtime.errors import KeyMissing, LeaseLost, MailboxRaised, Tampered
from runtime.executor import Executor, event_of, request_for
from runtime.heartbeat import Heartbeat, Held
from runtime.judging import Judge
from runtime.leases import Claim
from runtime.ports import (
    EffectHandler,
    Gatekeeper,
    ModelRequest,
    Outcome,
    ToolRequest,
    UnknownAgent,
)

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_SECONDS = 0.5


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


def advance(run: UUID, bench: Bench) -> bool:
    """Claim the run and take it as far as it goes. False if it is not to be had."""
    with database.pooled() as connection:
        claim = leases.claim(connection, run)
    if claim is None:
        bench.heartbeat.poke(run)
        return False
    inbox: queue.SimpleQueue[Arrived | None] = queue.SimpleQueue()
    with bench.heartbeat.holding(claim, lambda: inbox.put(None)) as held:
        try:
            Coordinator(bench, held, inbox, _load(claim, bench.handler)).work()
        except LeaseLost:
            log.warning("run %s: the lease was lost, nothing more is written", run)
        except (KeyMissing, NewerSchema, UnknownAgent) as exc:
            log.error("run %s left untouched for now: %s", run, exc)
            with database.pooled() as connection:
                leases.back_off(connection, claim)
        except Tampered as exc:
            log.critical("run %s quarantined: %s", run, exc)
            with database.pooled() as connection:
                leases.quarantine(connection, claim, str(exc))
    return True


def _load(claim: Claim, handler: EffectHandler) -> Continuation:
    """The verified state at the claim's position, of agents that this process has."""
    with database.pooled() as connection:
        base = continuations.load(connection, claim.run)
        now = journal.replay(connection, base, position=claim.position, head=claim.head)
    for agent in {now.agent, *(frame.agent for frame in now.frames.values())}:
        handler.agent(agent)
    return now


class Coordinator:
    """Advances one claimed run until it lets go of it."""

    def __init__(
        self,
        bench: Bench,
        held: Held,
        inbox: "queue.SimpleQueue[Arrived | None]",
        now: Continuation,
    ) -> None:
        self._bench = bench
        self._held = held
        self._inbox = inbox
        self._now = now
        self._running: set[tuple[str, str | None]] = set()
        self._ready: list[Work] = []
        self._mailbox = -1
        self._started = time.monotonic()
        self._judge = Judge(handler=bench.handler, gatekeeper=bench.gatekeeper)
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

    def _advance(self) -> bool:
        """Commit what there is to say. True when the run was let go of."""
        while True:
            self._read_signals()
            self._persist(lambda: self._draft.develop(self._asking()))
            under_way = self._running or self._ready or self._draft.work
            release = not under_way and not plan(self._draft.now)
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

    def _new_draft(self) -> Draft:
        wake = self._held.wake
        return Draft(
            self._now,
            self._bench.handler,
            self._judge,
            lambda: self._bench.executor.reserve(wake),
        )

    def _asking(self) -> set[str]:
        """The frames whose model call is under way."""
        waiting = {work.frame for work in self._ready if isinstance(work, AskModel)}
        return waiting | {frame for frame, call in self._running if call is None}

    # What comes in

    def _wait(self) -> None:
        """Block for news, then take everything that is there."""
        item = self._inbox.get()
        while True:
            if self._held.lost.is_set():
                raise LeaseLost
            if item is not None:
                self._running.discard(_place(item.request))
                self._draft.add(event_of(self._draft.now, item.request, item.outcome))
            try:
                item = self._inbox.get_nowait()
            except queue.Empty:
                return

    def _read_signals(self) -> None:
        """Read them when the mailbox is not as last read; a step that counts on it requires that count."""
        if self._held.mailbox is not None and self._held.mailbox == self._mailbox:
            return
        self._mailbox, found = self._persist(self._signals)
        self._held.mailbox = self._mailbox
        for signal in found:
            self._draft.take(signal)

    def _signals(self) -> tuple[int, tuple[signals.GateDecidedSignal, ...]]:
        with database.pooled() as connection:
            return signals.read(connection, self._now.run)

    # What goes out

    def _launch(self) -> None:
        """Start the effects whose intents are committed, as long as the lease surely lasts."""
        while self._ready and self._held.has_budget():
            work = self._ready.pop(0)
            request = request_for(self._now, work)
            self._running.add(_place(request))
            self._bench.executor.launch(request, self._deliver(request))

    def _deliver(self, request: ModelRequest | ToolRequest) -> Callable[[Outcome], None]:
        return lambda outcome: self._inbox.put(Arrived(request=request, outcome=outcome))

    def _commit(self, release: bool) -> None:
        step = self._step(self._draft, release)
        self._persist(lambda: self._write(step))
        self._now = replace(self._draft.now, position=step.entry.position, head=step.entry.seal.mac)

    def _step(self, draft: Draft, release: bool) -> steps.Step:
        position = self._now.position + 1
        written = Entry(at=self._clock(), events=tuple(draft.events))
        entry = journal.seal(self._now.run, position, self._now.head, written)
        now = replace(draft.now, position=position, head=entry.seal.mac)
        return steps.Step(
            claim=self._held.claim,
            entry=entry,
            status=status_of(now, held=not release),
            output=json.dumps(now.outcome) if now.phase is Phase.COMPLETED else None,
            reason=now.outcome if now.phase is Phase.FAILED else None,
            ended=now.ended,
            release=release,
            mailbox=self._mailbox,
            continuation=now if release and not now.ended else None,
            opened=draft.opened,
            taken=tuple(draft.taken),
            signals=tuple(draft.signals),
        )

    def _write(self, step: steps.Step) -> None:
        if not self._draft.pictures:
            with database.pooled() as connection:
                steps.commit(connection, step, prepare=True)
            return
        close_old_connections()
        with transaction.atomic():
            if steps.written(database.djangos(), step):
                return
            self._bench.gatekeeper.open(self._draft.pictures)
            steps.commit(database.djangos(), step, prepare=False)

    def _let_go(self) -> None:
        with database.pooled() as connection:
            done = leases.release(
                connection,
                self._held.claim,
                status=status_of(self._now, held=False),
                mailbox=self._mailbox,
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
            except (psycopg.OperationalError, OperationalError) as exc:
                log.warning("run %s: Postgres is out of reach: %s", self._now.run, exc)
                if self._held.lost.wait(RETRY_SECONDS):
                    raise LeaseLost from exc
                close_old_connections()

    def _clock(self) -> datetime:
        """The claim's database time plus what has passed since, by this process's steady clock."""
        return self._held.claim.at + timedelta(seconds=time.monotonic() - self._started)


def _place(request: ModelRequest | ToolRequest) -> tuple[str, str | None]:
    return request.frame, request.call if isinstance(request, ToolRequest) else None
