"""Commits steps of one claimed run and releases it; retries while Postgres is unreachable.

A step writer knows the committed state and the signal count that belongs to it. Its time is the database time of the
claim plus the time elapsed in this process.

Large contents, results and remembered texts, are named by their hash. Those for the object store are written before the
step that names them. A store that is down makes the step wait: the runner keeps the outcome and tries again. A process
that must end, and the step of a transactional call, which holds a transaction open, put the content into Postgres.
"""

import dataclasses
import itertools
import json
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

import psycopg
from django.db import transaction

from runtime import broker
from runtime.core.documents.blobs import Blob
from runtime.core.documents.continuations import Brief, Conversations
from runtime.core.run.accounting import advance_clock, find_exhaustion_time
from runtime.core.run.continuation import (
    Continuation,
    Phase,
    derive_status,
    list_calls_in_doubt,
    replace,
)
from runtime.core.run.events import Compacted, Remembered, ToolStarted
from runtime.core.run.reducer import Entry
from runtime.core.values.ids import ROOT, compute_depth
from runtime.core.values.texts import clean_text
from runtime.errors import LeaseLost, ObjectStoreDown
from runtime.execution import heartbeat
from runtime.execution.effects.transactional import TransactionalResult
from runtime.execution.worker import MAX_CHARACTERS, RunPauses, YieldPolicy, repeat_until_reachable
from runtime.ports.approvals import ApprovalPort, StatementPart
from runtime.store import failpoints, leases, pool, steps
from runtime.store.pool import Connection
from runtime.store.steps import Records
from runtime.store.tables import blobs as stored_blobs
from runtime.store.tables import (
    continuations,
    journal,
    late_outcomes,
    objects,
    partial_replies,
    signals,
    used_approvals,
)
from runtime.store.tables.late_outcomes import LateOutcomeRow
from runtime.store.tables.partial_replies import PartialReplyRow

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

STORE_SECONDS = 1.0  # between two attempts at a store that is down


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedRun:
    """A loaded run: its verified state, its entries, and its signals.

    `rows` are the entries, to which each step adds one. `conversations` may have read the first ones.
    `read` is what the claim has read for the approvals.
    """

    now: Continuation
    rows: list[journal.Row]
    conversations: Conversations
    pending_signals: signals.PendingSignals
    read: Any = None


class StepWriter:
    """Writes one run while its claim is valid. `now` is the committed state."""

    def __init__(
        self, pauses: RunPauses, approvals: ApprovalPort, loaded: LoadedRun, yielding: YieldPolicy
    ) -> None:
        self.now = loaded.now
        self.pauses = pauses
        self._rows = loaded.rows  # of all entries
        self._conversations = loaded.conversations
        # The bytes of the entries up to the live continuation (0 if there is none), and of the entries after it.
        self._covered = self._tail = 0
        for position, body, *_ in loaded.rows:
            if position <= pauses.claimed.claim.continuation_position:
                self._covered += len(body)
            else:
                self._tail += len(body)
        # Until they are consumed:
        self._loaded: signals.PendingSignals | None = loaded.pending_signals
        self._read = loaded.read  # until signals are read again, or gates opened
        self._yielding = yielding
        self._claimed = pauses.claimed
        self._approvals = approvals
        self._written: set[str] = set()  # the keys of objects; no key is used for two rows
        self._signal_version = -1
        self._origin: tuple[str, ...] = ()
        self.settling: frozenset[UUID] = frozenset()  # gates whose decision can still be undone
        # The signal count of that moment, and:
        self._late: tuple[int, tuple[LateOutcomeRow, ...]] = (-1, ())
        self.next_signal: datetime | None = None  # when the next one takes effect that has not yet
        self._started = heartbeat.elapsed()

    def read_clock(self) -> datetime:
        """Return the present database time."""
        return self._claimed.claim.at + timedelta(seconds=heartbeat.elapsed() - self._started)

    def read_signals(self) -> tuple[signals.Signal, ...]:
        """Read the signals if the signal count has changed. A step that consumes them requires that count."""
        pending, self._loaded = self._loaded, None
        if pending is None:
            is_unchanged = (
                self._claimed.signal_version is not None
                and self._claimed.signal_version == self._signal_version
            )
            if is_unchanged and (self.next_signal is None or self.next_signal > self.read_clock()):
                return ()
            self._read = None
            pending = self._ask(signals.read, self.now.run)
        self._signal_version, self.next_signal, self.settling = (
            pending.count,
            pending.next,
            pending.settling,
        )
        self._origin = pending.origin
        self._claimed.signal_version = self._signal_version
        return pending.due

    def read_late_outcomes(self, now: Continuation) -> tuple[LateOutcomeRow, ...]:
        """Read the run's late outcomes if a call is in doubt. Each of them has increased the signal count."""
        if not list_calls_in_doubt(now):
            return ()
        if self._late[0] != self._signal_version:
            outcomes = self._ask(late_outcomes.read_for_run, now.run)
            for problem in outcomes.forged:
                log.critical("Run %s: late outcome ignored: %s", now.run, problem)
            self._late = self._signal_version, outcomes.genuine
        return self._late[1]

    def read_kept_parts(self) -> dict[str, PartialReplyRow]:
        """Read the kept parts of replies, by frame. A row that no worker wrote is ignored, with an alarm."""
        parts, forged = self._ask(partial_replies.read_for_run, self.now.run)
        for frame in forged:
            log.critical("Run %s: kept part of a reply of frame %s ignored", self.now.run, frame)
        return parts

    def reread_signals(self) -> None:
        """Have the signals read again, even if their count has not changed."""
        self._claimed.signal_version = None

    def read_content(self, digest: str) -> Any:
        """Return a result that is stored by its hash. Raises Tampered."""
        return self._ask(stored_blobs.fetch, digest)

    def recall(self, memory: Sequence[Remembered]) -> Mapping[str, str]:
        """Return the texts that the run remembers, by digest. Raises Tampered for an altered one."""
        return self._ask(stored_blobs.read_remembered_texts, [text.digest for text in memory])

    def commit(self, records: Records, now: Continuation, *, release: bool) -> steps.CommitResult:
        """Write the records as one step, which leads to `now`. Raises LeaseLost or Tampered, with nothing written."""
        blobs = self._write_contents(tuple(records.blobs)) if records.blobs else ()
        step = self._step(records, now, blobs, release=release)
        # Postgres may have been restored to a state before the use; the ledger is a file of its own.
        if step.spent:
            used_approvals.require_unspent(self.now.run, step.spent)
        started = heartbeat.elapsed()
        result = self._write(records, step, itertools.count())
        if result is not steps.CommitResult.WRITTEN:
            return result
        self._committed(step, records, started)
        if not release:
            if self._yielding.count_step():
                self._yielding.should_yield = self._ask(leases.has_waiting_runs)
        elif self._yielding.has_ready_work(self.now):
            self._dispatch()
        return result

    def commit_result(
        self, records: Records, now: Continuation, result: TransactionalResult
    ) -> BaseException | None:
        """Write the records as the last statement of a tool's own transaction.

        Return the error if the tool's writes were rolled back. Raises LeaseLost.
        """
        blobs = self._write_contents(tuple(records.blobs), waits=False)
        step, started = self._step(records, now, blobs, release=False), heartbeat.elapsed()
        problem = result.commit(step, self._parts(records, step))
        if isinstance(problem, LeaseLost):
            raise problem
        if problem is not None and not self._is_written(step):
            return problem
        self._committed(step, records, started)
        return None

    def release(self) -> steps.CommitResult:
        """Release a run that has no more to do now. Raises LeaseLost."""
        result = self._release()
        if result is steps.CommitResult.WRITTEN:
            broker.notify_run(self.now.run, inbox=False)
            if self._yielding.has_ready_work(self.now):
                self._dispatch()
        return result

    def _dispatch(self) -> None:
        """Send the run to the end of the queue if others wait."""
        broker.dispatch(self.now.run, broker.NEW if self._yielding.should_yield else broker.RESUMED)

    def _write_contents(self, blobs: tuple[Blob, ...], *, waits: bool = True) -> tuple[Blob, ...]:
        """Write those for the object store, and return all as the step has them.

        Without `waits`, or when the process ends, a store that is down leaves them to Postgres.
        """
        outside = [blob for blob in blobs if blob.outside]
        while outside:
            try:
                keys = self._ask(objects.reserve, outside)
                for blob in outside:
                    key = keys.get(blob.digest)
                    if key is not None and key not in self._written:
                        objects.put(key, blob)
                        self._written.add(key)
                break
            except ObjectStoreDown as exc:
                log.warning("Run %s: its step waits: %s", self.now.run, exc)
                if not waits or self._yielding.draining.started:
                    return tuple(dataclasses.replace(blob, outside=False) for blob in blobs)
                reason = clean_text(str(exc))
            with suppress(psycopg.Error), pool.pooled() as connection:
                leases.await_store(connection, self._claimed.claim, reason)
            broker.notify_run(self.now.run, inbox=False)
            self.pauses.pause(STORE_SECONDS)
        return blobs

    @repeat_until_reachable
    def _ask(
        self, query: Callable[Concatenate[Connection, P], T], /, *args: P.args, **kwargs: P.kwargs
    ) -> T:
        with pool.pooled() as connection:
            return query(connection, *args, **kwargs)

    @repeat_until_reachable
    def _is_written(self, step: steps.Step) -> bool:
        with pool.pooled() as connection, connection.transaction():
            return steps.was_written_after_wait(connection, step)

    def _committed(self, step: steps.Step, records: Records, started: float) -> None:
        failpoints.hit("committed", step.kind, step.depth)
        elapsed = heartbeat.elapsed() - started
        self._claimed.measures.add_step(elapsed, records.events, step.state, self.now)
        self.now = step.state
        if self._claimed.claim.lost_leases and not step.release and self._yielding.take_losses():
            self._ask(leases.clear_losses, self._claimed.claim)
        self._tail += len(step.entry.body)
        if step.continuation is not None:
            self._covered, self._tail = self._covered + self._tail, 0
        self._rows.append(step.entry.row)
        if step.pins and self._covered > MAX_CHARACTERS:
            # Nothing needs the entries up to a base, and no process caches this many: a run may go on for long.
            del self._rows[:-1]
            self._conversations.reset()
            self._covered, self._tail = len(step.entry.body), 0
        broker.notify_run(
            self.now.run, inbox=bool(step.opened_gates or step.settled or step.closed)
        )

    def _step(
        self, records: Records, after: Continuation, blobs: tuple[Blob, ...], *, release: bool
    ) -> steps.Step:
        if self._conversations.position > len(self._rows):
            self._conversations.reset()  # they have read the entry of a step that was not written
        position, last = self.now.position + 1, records.events[-1]
        written = Entry(at=self.read_clock(), events=tuple(records.events))
        entry = journal.sign(self.now.run, position, self.now.head, written)
        now = advance_clock(
            self.now, replace(after, position=position, head=entry.seal.mac), written.at
        )
        ended = now.ended
        pins = Compacted in records.by_type and not ended
        return steps.Step(
            claim=self._claimed.claim,
            state=now,
            kind=last.type,
            depth=compute_depth(getattr(last, "frame", ROOT)),
            entry=entry,
            status=derive_status(now, leased=not release),
            output=json.dumps(now.outcome) if now.phase is Phase.COMPLETED else None,
            reason=now.outcome if now.phase in (Phase.FAILED, Phase.CANCELLED) else None,
            awaits=now.outage_error,
            unheard=len(now.unheard),
            ended=ended,
            release=release,
            due=self._due(now) if release else None,
            signal_version=self._signal_version,
            continuation=(
                None if ended else self._continuation(now, entry, pins=pins, release=release)
            ),
            pins=pins,
            signals=tuple(records.signals),
            blobs=blobs,
            spent=records.list_spent_approvals(after) if ToolStarted in records.by_type else (),
            ended_replies=tuple(sorted(records.ended_replies)),
            **records.parts(self.now, now),
        )

    def _continuation(
        self, now: Continuation, entry: journal.SignedEntry, *, pins: bool, release: bool
    ) -> Brief | None:
        """Return the continuation that this step writes, None if the run needs no new one."""
        tail = self._tail + len(entry.body)
        if pins:
            return Brief(state=now)
        if not continuations.needs_brief(self._covered, tail, release=release):
            return None
        for _, body, *_ in (*self._rows[self._conversations.position :], entry.row):
            self._conversations.read(body)
        if (brief := self._conversations.shorten_continuation(now)) is not None:
            return brief
        return Brief(state=now) if continuations.needs_rewrite(self._covered, tail) else None

    @repeat_until_reachable
    def _write(
        self, records: Records, step: steps.Step, tries: Iterator[int]
    ) -> steps.CommitResult:
        if not step.closed:
            # One prepared statement in autocommit: a transaction with the ORM costs about twice as much.
            with pool.pooled() as connection:
                parts = self._parts(records, step, connection)
                return steps.commit(connection, step, parts)
        with transaction.atomic():
            connection = pool.use_django_connection()
            if next(tries) and steps.was_written_after_wait(connection, step):
                # By the attempt before, whose COMMIT was interrupted.
                return steps.CommitResult.WRITTEN
            for reason, gates in records.closed.items():
                self._approvals.close(run=self.now.run, gates=gates, actor=None, reason=reason)
                self._read = None  # its audit rows are newer
            parts = self._parts(records, step, connection)
            result = steps.commit(connection, step, parts)
            transaction.set_rollback(result is not steps.CommitResult.WRITTEN)
            return result

    def _parts(
        self, records: Records, step: steps.Step, connection: Connection | None = None
    ) -> tuple[StatementPart, ...]:
        """Return the parts that write the requests of opened gates, and the outcomes of decided calls.

        A gate that the step itself closes again, because the run ends, has neither a row nor a request.
        A tool's own transaction, which has no `connection` here, opens no gate.
        """
        parts: tuple[StatementPart, ...] = ()
        snapshots = [asked for asked in records.snapshots if asked.gate not in step.closed]
        if snapshots and connection is not None:
            # Once: a step that opens gates, or a faster one, adds audit rows.
            read, self._read = self._read, None
            parts = self._approvals.open(
                connection, snapshots, origin=self._origin, at=self.read_clock(), read=read
            )
        ended = records.ended(self.now)
        if ended:
            parts += self._approvals.outcomes(ended, position=step.entry.position)
        return parts

    @repeat_until_reachable
    def _release(self) -> steps.CommitResult:
        with pool.pooled() as connection:
            released = leases.release(
                connection,
                self._claimed.claim,
                status=derive_status(self.now, leased=False),
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
        if now.ended:
            return None
        if (due := self._yielding.compute_due_time(now, self.read_clock())) is not None:
            return due
        moments = [wait.until for wait in now.waits()]
        moments += [pending.expires_at for pending in now.pending if pending.expires_at is not None]
        moments += [
            moment for moment in (self.next_signal, find_exhaustion_time(now)) if moment is not None
        ]
        return min(moments, default=None)
