"""A running effect: its outcome goes to the runner, or to the table of late outcomes.

A call may end after its deadline, or after its worker has lost or released the run. Its outcome is then written to a
table of its own. The worker that has the run, or claims it next, reads it there.
"""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

import psycopg

from runtime import broker
from runtime.core.documents import codec
from runtime.core.documents.codec import result_lost
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.core.values.errors import NotJson
from runtime.errors import RunEnded
from runtime.execution.effects.outcomes import arrival
from runtime.ports.effects import (
    Abort,
    Keep,
    ModelRequest,
    Outcome,
    PreviewRequest,
    ToolFailure,
    ToolRequest,
    ToolResult,
)
from runtime.store import leases, pool, runs
from runtime.store.tables import late_outcomes
from runtime.store.tables.late_outcomes import LateOutcomeRow

log = logging.getLogger(__name__)

TRIES, PAUSE_SECONDS = 120, 0.5  # while Postgres is unreachable


def no_abort() -> None:
    """Abort an effect that cannot be aborted: do nothing."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunningEffect:
    """One launched effect. It is settled once, by the first of its own end and its deadline.

    `submit` puts a message into the runner's queue. `started_at` is the time of the intent, `worker` this process; a
    late outcome is recorded with both. `abort` ends a model call, or the transaction of a transactional call.
    `keeps_slot` is True for the preview just before a call: its slot then starts the call. `is_cut` says that a
    person's message cuts this reply off. `keep` gets the received part of a reply. Its writer holds `keeping` and sets
    `is_kept`.
    """

    request: ModelRequest | PreviewRequest | ToolRequest
    submit: Callable[["EffectFinished"], None]
    started_at: datetime | None = None
    worker: UUID | None = None
    keeps_slot: bool = False
    is_cut: bool = False
    keep: Keep | None = None
    keeping: threading.Lock = field(default_factory=threading.Lock)
    is_kept: bool = False
    abort: Abort = no_abort
    cancel_deadline: Callable[[], None] = no_abort
    _settled: threading.Lock = field(default_factory=threading.Lock)

    @property
    def location(self) -> tuple[str, str | None]:
        """The frame and the call; no call for the frame's model call."""
        request = self.request
        return request.frame, request.call if isinstance(request, ToolRequest) else None

    @property
    def is_settled(self) -> bool:
        """Whether the effect is settled."""
        return self._settled.locked()

    def settle(self) -> bool:
        """Settle this effect. False if it was settled before; only the first caller submits the outcome."""
        return self._settled.acquire(blocking=False)

    def finish(self, outcome: Outcome, slot: "KeptSlot | None" = None) -> None:
        """Submit the outcome of a settled effect to the runner, with its slot if it keeps one."""
        self.submit(EffectFinished(effect=self, outcome=outcome, slot=slot))

    def record_late(self, outcome: Outcome) -> None:
        """Record an outcome that no runner journals. Never raises."""
        if isinstance(self.request, ToolRequest) and self.started_at and self.worker:
            record(self.request, outcome, started_at=self.started_at, worker=self.worker)


class KeptSlot:
    """The slot of a preview that has ended. `take` succeeds once: then the caller uses the slot or releases it."""

    def __init__(self, release: Callable[[], None]) -> None:
        self.release = release
        self._take_lock = threading.Lock()

    def take(self) -> bool:
        """Take the slot. Return False if it was taken before."""
        return self._take_lock.acquire(blocking=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFinished:
    """The message to the runner with the outcome of one effect, and the slot that the effect kept."""

    effect: RunningEffect
    outcome: Outcome
    slot: KeptSlot | None = None

    def discard(self) -> None:
        """Drop the outcome: the runner has ended and does not journal it. Two threads may call this."""
        if self.slot is not None and self.slot.take():
            self.slot.release()
        self.effect.record_late(self.outcome)


def record(request: ToolRequest, outcome: Outcome, *, started_at: datetime, worker: UUID) -> None:
    """Record the outcome, unless it is unknown or the call may safely be repeated.

    `started_at` is the time of the intent. Blocks while Postgres is unreachable, for at most a minute. Never raises.
    """
    if (
        not isinstance(outcome, ToolResult | ToolFailure)
        or not EFFECT_CLASSES[request.effect].happened_when_returned
    ):
        return
    for _ in range(TRIES):
        try:
            _record(request, outcome, started_at, worker)
        except Exception as exc:  # the caller must free its thread in every case
            if not isinstance(exc, psycopg.Error) or not pool.is_passing(exc):
                log.exception("Call %s: late outcome not recorded", request.key)
                return
            time.sleep(PAUSE_SECONDS)  # a bounded retry: Postgres sends no signal when it is back
        else:
            return
    log.critical("Call %s: late outcome lost, Postgres is unreachable", request.key)


def _record(
    request: ToolRequest, outcome: ToolResult | ToolFailure, started_at: datetime, worker: UUID
) -> None:
    with pool.pooled() as connection, connection.transaction():
        leases.lock(connection, request.run)
        late = _storable(
            LateOutcomeRow(
                run=request.run,
                frame=request.frame,
                call=request.call,
                attempt=request.attempt,
                started_at=started_at,
                worker=worker,
                at=pool.now(connection),
                outcome="returned" if isinstance(outcome, ToolResult) else "failed",
                result=outcome.value if isinstance(outcome, ToolResult) else None,
                error=outcome.error if isinstance(outcome, ToolFailure) else "",
            )
        )
        if not late_outcomes.insert(connection, late):
            return
        with suppress(RunEnded):  # then the row is only evidence
            runs.notify_signal(connection, request.run)
    log.warning("Call %s: ended late, outcome recorded: %s", request.key, late.outcome)
    broker.dispatch(request.run)
    broker.notify_run(request.run, inbox=False)


def _storable(late: LateOutcomeRow) -> LateOutcomeRow:
    """Return the outcome with a note in place of a result that no entry can carry."""
    try:
        codec.require_encodable(arrival(late, gate=None))
    except NotJson as exc:
        return replace(late, result=result_lost(f"its result cannot be stored: {exc}"))
    return late
