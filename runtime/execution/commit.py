"""Commits steps of one claimed run and releases it; retries while Postgres is unreachable.

A step writer knows the committed state and the signal count that belongs to it. Its time is the database time of the
claim plus the time elapsed in this process.
"""

import functools
import itertools
import json
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg
from django.db import DatabaseError, InterfaceError, transaction

from runtime.broker import dispatch
from runtime.core.continuation import Continuation, Phase, in_doubt, status_of
from runtime.core.documents.blobs import Blob
from runtime.core.documents.conversations import Brief, Conversations
from runtime.core.events import Compacted
from runtime.core.fast_replace import replace
from runtime.core.ids import ROOT, depth_of
from runtime.core.machine.active_time import advance_clock, exhausted_at
from runtime.core.machine.replay import Entry
from runtime.errors import LeaseLost
from runtime.execution import clock
from runtime.execution.concurrency import RunSlots
from runtime.execution.contents import ContentWriter
from runtime.execution.effects.transactional import TransactionalResult
from runtime.execution.heartbeat import ClaimedRun
from runtime.execution.recent_runs import MAX_CHARACTERS
from runtime.execution.yielding import YieldPolicy
from runtime.ports.approvals import ApprovalPort, StatementPart
from runtime.store import failpoints, leases, pool, steps
from runtime.store.pool import Connection
from runtime.store.records import Records
from runtime.store.tables import blobs as stored_blobs
from runtime.store.tables import (
    continuations,
    journal,
    late_outcomes,
    ledger,
    partial_replies,
    signals,
)
from runtime.store.tables.late_outcomes import LateOutcomeRow
from runtime.store.tables.partial_replies import KeptPart

log = logging.getLogger(__name__)

T = TypeVar("T")

# A write is retried after those of these errors that `pool.is_passing` accepts.
DATABASE_ERRORS = (psycopg.Error, DatabaseError, InterfaceError)
RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """The bytes of the entries up to the live continuation (0 if there is none), and of the entries after it."""

    covered: int = 0
    tail: int = 0

    @staticmethod
    def of(entries: journal.Entries, *, base: int) -> "Sizes":
        """Measure the entries of a run whose continuation is at position `base`."""
        covered = sum(len(body) for position, body, *_ in entries.rows if position <= base)
        return Sizes(covered=covered, tail=sum(len(body) for _, body, *_ in entries.rows) - covered)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A loaded run: its verified state, its entries, and its signals.

    `rows` are the entries, to which each step adds one. `conversations` may have read the first ones.
    `read` is what the claim has read for the approvals.
    """

    now: Continuation
    rows: list[journal.Row]
    conversations: Conversations
    sizes: Sizes
    pending_signals: signals.PendingSignals
    read: Any = None


class StepWriter:
    """Writes one run while its claim is valid. `now` is the committed state."""

    def __init__(
        self,
        claimed: ClaimedRun,
        slots: RunSlots,
        approvals: ApprovalPort,
        loaded: LoadedRun,
        yielding: YieldPolicy,
    ) -> None:
        self.now = loaded.now
        self._rows = loaded.rows  # of all entries
        self._conversations = loaded.conversations
        self._sizes = loaded.sizes
        self._loaded: signals.PendingSignals | None = (
            loaded.pending_signals
        )  # until they are consumed
        self._read = loaded.read  # until signals are read again, or gates opened
        self._yielding = yielding
        self._claimed = claimed
        self._slots = slots
        self._approvals = approvals
        self._signal_version = -1
        self._origin: tuple[str, ...] = ()
        self.settling: frozenset[UUID] = frozenset()  # gates whose decision can still be undone
        self._late: tuple[int, tuple[LateOutcomeRow, ...]] = (
            -1,
            (),
        )  # and the signal count of that moment
        self.next_signal: datetime | None = (
            None  # when the next signal takes effect that is not in effect yet
        )
        self._started = clock.elapsed()
        self._contents = ContentWriter(claimed, slots, yielding, self.retry_while_unreachable)

    def clock(self) -> datetime:
        """Return the present database time."""
        return self._claimed.claim.at + timedelta(seconds=clock.elapsed() - self._started)

    def retry_while_unreachable(self, act: Callable[[], T]) -> T:
        """Call `act`, and retry until Postgres is reachable again: a lost connection must not lose an outcome.

        Raises LeaseLost once another worker has the run.
        """
        while True:
            try:
                return act()
            except DATABASE_ERRORS as exc:
                if not pool.is_passing(exc):
                    raise
                log.warning("Run %s: Postgres is unreachable: %s", self.now.run, exc)
                with self._slots.released():
                    self._claimed.lost.wait(RETRY_SECONDS)
                if self._claimed.lost.is_set():
                    raise LeaseLost from exc

    def read_signals(self) -> tuple[signals.Signal, ...]:
        """Read the signals if the signal count has changed. A step that consumes them requires that count."""
        pending, self._loaded = self._loaded, None
        if pending is None:
            is_unchanged = (
                self._claimed.signal_version is not None
                and self._claimed.signal_version == self._signal_version
            )
            if is_unchanged and (self.next_signal is None or self.next_signal > self.clock()):
                return ()
            self._read = None
            pending = self.retry_while_unreachable(self._signals)
        self._signal_version, self.next_signal, self.settling = (
            pending.count,
            pending.next,
            pending.settling,
        )
        self._origin = pending.origin
        self._claimed.signal_version = self._signal_version
        return pending.due

    def late_outcomes(self, now: Continuation) -> tuple[LateOutcomeRow, ...]:
        """Read the run's late outcomes if a call is in doubt. Each of them has increased the signal count."""
        if not in_doubt(now):
            return ()
        if self._late[0] != self._signal_version:
            self._late = (
                self._signal_version,
                self.retry_while_unreachable(functools.partial(_late, now.run)),
            )
        return self._late[1]

    def kept_parts(self) -> dict[str, KeptPart]:
        """Read the kept parts of replies, by frame. A row that no worker wrote is ignored, with an alarm."""
        parts, forged = self.retry_while_unreachable(functools.partial(_parts, self.now.run))
        for frame in forged:
            log.critical("Run %s: kept part of a reply of frame %s ignored", self.now.run, frame)
        return parts

    def reread_signals(self) -> None:
        """Have the signals read again, even if their count has not changed."""
        self._claimed.signal_version = None

    def commit(self, records: Records, now: Continuation, *, release: bool) -> steps.CommitResult:
        """Write the records as one step, which leads to `now`. Raises LeaseLost or Tampered, with nothing written."""
        blobs = self._contents.write(records.blobs)
        step = self._step(records, now, blobs, release=release)
        ledger.require_unspent(self.now.run, step.spent)
        started = clock.elapsed()
        result = self.retry_while_unreachable(
            functools.partial(self._write, records, step, itertools.count())
        )
        if result is not steps.CommitResult.WRITTEN:
            return result
        self._committed(step, records, started)
        if not release:
            self._yielding.count_step(lambda: self.retry_while_unreachable(_has_waiting_runs))
        elif self._yielding.has_ready_work(self.now):
            self._dispatch()
        return result

    def commit_result(
        self, records: Records, now: Continuation, result: TransactionalResult
    ) -> BaseException | None:
        """Write the records as the last statement of a tool's own transaction.

        Return the error if the tool's writes were rolled back. Raises LeaseLost.
        """
        blobs = self._contents.write(records.blobs, waits=False)
        step, started = self._step(records, now, blobs, release=False), clock.elapsed()
        problem = result.commit(step, self._outcomes(records, step))
        if isinstance(problem, LeaseLost):
            raise problem
        if problem is not None and not self.retry_while_unreachable(
            functools.partial(_written, step)
        ):
            return problem
        self._committed(step, records, started)
        return None

    def content(self, digest: str) -> Any:
        """Return a result that is stored by its hash. Raises Tampered, or LeaseLost."""
        return self.retry_while_unreachable(functools.partial(_content, digest))

    def release(self) -> steps.CommitResult:
        """Release a run that has no more to do now. Raises LeaseLost."""
        result = self.retry_while_unreachable(self._release)
        if result is steps.CommitResult.WRITTEN:
            dispatch.notify_run(self.now.run, inbox=False)
            if self._yielding.has_ready_work(self.now):
                self._dispatch()
        return result

    def _dispatch(self) -> None:
        """Send the run to the end of the queue if others wait."""
        dispatch.dispatch(
            self.now.run, dispatch.NEW if self._yielding.should_yield else dispatch.RESUMED
        )

    def _clear_losses(self) -> None:
        with pool.pooled() as connection:
            leases.clear_losses(connection, self._claimed.claim)

    def _signals(self) -> signals.PendingSignals:
        with pool.pooled() as connection:
            return signals.read(connection, self.now.run)

    def _committed(self, step: steps.Step, records: Records, started: float) -> None:
        failpoints.hit("committed", step.kind, step.depth)
        self._claimed.measures.add_step(
            clock.elapsed() - started, records.events, step.state, self.now
        )
        self.now = step.state
        if self._claimed.claim.lost_leases and not step.release and self._yielding.take_losses():
            self.retry_while_unreachable(self._clear_losses)
        covered, tail = self._sizes.covered, self._sizes.tail + len(step.entry.body)
        if step.continuation is None:
            self._sizes = Sizes(covered=covered, tail=tail)
        else:
            self._sizes = Sizes(covered=covered + tail)
        self._rows.append(step.entry.row)
        if step.pins and self._sizes.covered > MAX_CHARACTERS:
            # Nothing needs the entries up to a base, and no process caches this many: a run may go on for long.
            del self._rows[:-1]
            self._conversations.reset()
            self._sizes = Sizes(covered=len(step.entry.body))
        dispatch.notify_run(self.now.run, inbox=bool(step.opened or step.settled or step.closed))

    def _step(
        self, records: Records, after: Continuation, blobs: tuple[Blob, ...], *, release: bool
    ) -> steps.Step:
        if self._conversations.position > len(self._rows):
            self._conversations.reset()  # they have read the entry of a step that was not written
        position, events = self.now.position + 1, records.events
        written = Entry(at=self.clock(), events=events)
        entry = journal.sign(self.now.run, position, self.now.head, written)
        now = advance_clock(
            self.now, replace(after, position=position, head=entry.seal.mac), written.at
        )
        pins = bool(records.of(Compacted)) and not now.ended
        summary = records.summary
        continuation = self._continuation(now, entry, pins=pins, release=release)
        return steps.Step(
            claim=self._claimed.claim,
            state=now,
            kind=events[-1].type,
            depth=depth_of(getattr(events[-1], "frame", ROOT)),
            entry=entry,
            status=status_of(now, held=not release),
            output=json.dumps(now.outcome) if now.phase is Phase.COMPLETED else None,
            reason=now.outcome if now.phase in (Phase.FAILED, Phase.CANCELLED) else None,
            awaits=now.outage_error,
            unheard=len(now.unheard),
            ended=now.ended,
            release=release,
            due=self._due(now) if release else None,
            signal_version=self._signal_version,
            continuation=continuation,
            pins=pins,
            opened=records.opened(now),
            settled=records.settled,
            closed=tuple(itertools.chain.from_iterable(records.closed.values())),
            signals=tuple(records.signals),
            blobs=blobs,
            opened_waits=records.opened_waits(now),
            ended_waits=records.ended_waits,
            first=records.needs_first,
            spent=records.spent(after),
            kept=tuple(sorted(records.kept)),
            summary=summary,
            summed_up=tuple(remembered.digest for remembered in self.now.memory) if summary else (),
        )

    def _continuation(
        self, now: Continuation, entry: journal.SignedEntry, *, pins: bool, release: bool
    ) -> Brief | None:
        """Return the continuation that this step writes, None if the run needs no new one."""
        covered, tail = self._sizes.covered, self._sizes.tail + len(entry.body)
        if pins:
            return Brief(state=now)
        if now.ended or not continuations.needs_brief(covered, tail, release=release):
            return None
        if (brief := self._brief(now, entry)) is not None:
            return brief
        return Brief(state=now) if continuations.needs_rewrite(covered, tail) else None

    def _brief(self, now: Continuation, entry: journal.SignedEntry) -> Brief | None:
        """Read the new entries into the conversations, up to this one, and return the brief state or None."""
        for _, body, *_ in (*self._rows[self._conversations.position :], entry.row):
            self._conversations.read(body)
        return self._conversations.brief(now)

    def _write(
        self, records: Records, step: steps.Step, tries: Iterator[int]
    ) -> steps.CommitResult:
        if not step.closed:
            with pool.pooled() as connection:
                extra_statements = self._open_requests(
                    connection, records, read=self._take_read(records)
                )
                extra_statements += self._outcomes(records, step)
                return steps.commit(connection, step, extra_statements, prepare=True)
        with transaction.atomic():
            connection = pool.djangos()
            if next(tries) and steps.written_after_wait(connection, step):
                return (
                    steps.CommitResult.WRITTEN
                )  # by the attempt before, whose COMMIT was interrupted
            for reason, gates in records.closed.items():
                self._approvals.close(run=self.now.run, gates=gates, actor=None, reason=reason)
            extra_statements = self._open_requests(
                connection, records, read=None
            )  # its audit rows are newer
            extra_statements += self._outcomes(records, step)
            result = steps.commit(connection, step, extra_statements, prepare=False)
            transaction.set_rollback(result is not steps.CommitResult.WRITTEN)
            return result

    def _take_read(self, records: Records) -> Any:
        """Return what the claim has read, once: a step that opens gates, or a faster one, adds audit rows."""
        if not records.snapshots:
            return None
        read, self._read = self._read, None
        return read

    def _open_requests(
        self, connection: Connection, records: Records, *, read: Any
    ) -> tuple[StatementPart, ...]:
        """Return the parts that write the approval requests, if gates open."""
        snapshots = records.snapshots
        if not snapshots:
            return ()
        return self._approvals.open(
            connection, snapshots, origin=self._origin, at=self.clock(), read=read
        )

    def _outcomes(self, records: Records, step: steps.Step) -> tuple[StatementPart, ...]:
        """Return the parts that record the outcomes of decided calls, if any ends."""
        ended = records.ended(self.now)
        if not ended:
            return ()
        return self._approvals.outcomes(ended, position=step.entry.position)

    def _release(self) -> steps.CommitResult:
        with pool.pooled() as connection:
            released = leases.release(
                connection,
                self._claimed.claim,
                status=status_of(self.now, held=False),
                signal_version=self._signal_version,
                due=self._due(self.now),
            )
            if released:
                return steps.CommitResult.WRITTEN
            now = leases.read(connection, self.now.run)
        ours = (now.epoch, now.owner) == (self._claimed.claim.epoch, self._claimed.claim.owner)
        return steps.CommitResult.NEW_SIGNALS if ours else steps.CommitResult.LOST

    def _due(self, now: Continuation) -> datetime | None:
        """Return the time at which a released run is due without a signal."""
        return self._yielding.due(now, self.clock()) or _due(now, self.next_signal)


def _due(now: Continuation, signal: datetime | None) -> datetime | None:
    moments = [wait.until for wait in now.waits()]
    moments += [] if signal is None else [signal]
    moments += [pending.expires_at for pending in now.pending if pending.expires_at is not None]
    if (used_up := exhausted_at(now)) is not None:
        moments.append(used_up)
    return None if now.ended else min(moments, default=None)


def _content(digest: str) -> Any:
    with pool.pooled() as connection:
        return stored_blobs.fetch(connection, digest)


def _late(run: UUID) -> tuple[LateOutcomeRow, ...]:
    with pool.pooled() as connection:
        outcomes = late_outcomes.of(connection, run)
    for problem in outcomes.forged:
        log.critical("Run %s: late outcome ignored: %s", run, problem)
    return outcomes.genuine


def _parts(run: UUID) -> tuple[dict[str, KeptPart], list[str]]:
    with pool.pooled() as connection:
        return partial_replies.of(connection, run)


def _has_waiting_runs() -> bool:
    with pool.pooled() as connection:
        return leases.has_waiting_runs(connection)


def _written(step: steps.Step) -> bool:
    with pool.pooled() as connection, connection.transaction():
        return steps.written_after_wait(connection, step)
