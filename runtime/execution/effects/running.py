"""A running effect, and the work of one run: ready to start, running, or with a slot that it keeps.

The outcome of an effect goes to the runner, or to the table of late outcomes.

A call may end after its deadline, or after its worker has lost or released the run. Its outcome is then written to a
table of its own. The worker that has the run, or claims it next, reads it there.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from uuid import UUID

import psycopg

from runtime import broker
from runtime.core.documents import codec
from runtime.core.documents.codec import make_lost_result
from runtime.core.run.continuation import Continuation
from runtime.core.run.gates import open_inquiry
from runtime.core.run.planning import AnswerInquiry, CallModel, StartTool
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.core.values.errors import NotJson
from runtime.errors import ObjectStoreDown, RunEnded
from runtime.execution.effects.outcomes import build_arrival_event
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
from runtime.store.steps import PreviewCall, Work
from runtime.store.tables import late_outcomes
from runtime.store.tables.late_outcomes import LateOutcomeRow

log = logging.getLogger(__name__)

TRIES, PAUSE_SECONDS = 120, 0.5  # while Postgres is unreachable
READ_AGAIN = timedelta(seconds=1)  # after the object store could not be read, while effects run
EffectRequest = ModelRequest | PreviewRequest | ToolRequest
_CallKey = tuple[str, str]


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
    cancel_deadline: Callable[[], object] = no_abort
    _settled: threading.Lock = field(default_factory=threading.Lock)

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
            record_outcome(self.request, outcome, started_at=self.started_at, worker=self.worker)


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


def record_outcome(
    request: ToolRequest, outcome: Outcome, *, started_at: datetime, worker: UUID
) -> None:
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
            _record_result(request, outcome, started_at, worker)
        except Exception as exc:  # the caller must free its thread in every case
            if not isinstance(exc, psycopg.Error) or not pool.is_passing(exc):
                log.exception("Call %s: late outcome not recorded", request.key)
                return
            time.sleep(PAUSE_SECONDS)  # a bounded retry: Postgres sends no signal when it is back
        else:
            return
    log.critical("Call %s: late outcome lost, Postgres is unreachable", request.key)


class RunWork:
    """The work of one run. `reads_at` is when contents are read again after the object store could not be read."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.ready: list[Work] = []  # recorded, not launched yet
        self.running: set[RunningEffect] = set()
        self.reads_at: datetime | None = None

    def await_contents(self, unreadable: Sequence[ObjectStoreDown]) -> None:
        """Have the contents of ready work that could not be read read again after a pause, while other effects run.

        Raises ObjectStoreDown if none does: the run is then released, and due again after a pause. Nothing is lost: a
        model call has no intent.
        """
        is_busy = bool(self.running) or len(self.ready) > len(unreadable)
        if unreadable and not is_busy:
            raise unreadable[-1]
        self.reads_at = self._clock() + READ_AGAIN if unreadable else None

    def list_calling_frames(self) -> set[str]:
        """Return the frames whose model call is recorded or running."""
        ready = {work.frame for work in self.ready if isinstance(work, CallModel)}
        return ready | {call.frame for call in self._model_requests() if call.inquiry is None}

    def list_open_inquiries(self) -> set[UUID]:
        """Return the inquiries whose model call is recorded or running."""
        ready = {work.inquiry for work in self.ready if isinstance(work, AnswerInquiry)}
        return ready | {call.inquiry for call in self._model_requests() if call.inquiry is not None}

    def list_open_previews(self) -> set[tuple[str, str]]:
        """Return the calls whose preview is recorded or running."""
        running = (work.request for work in self.running)
        return {
            (work.frame, work.call)
            for work in (*self.ready, *running)
            if isinstance(work, PreviewCall | PreviewRequest)
        }

    def cut_reply(self) -> None:
        """End the model call that answers without the message that was just journaled."""
        for effect in self.running:
            request = effect.request
            if isinstance(request, ModelRequest) and request.reads_messages:
                effect.is_cut = True
                effect.abort()

    def abort_model_calls(self) -> None:
        """End the running model calls. The received parts of their replies are their outcome."""
        for effect in self.running:
            if isinstance(effect.request, ModelRequest):
                effect.abort()

    def _model_requests(self) -> Iterator[ModelRequest]:
        requests = (effect.request for effect in self.running)
        return (request for request in requests if isinstance(request, ModelRequest))


def is_too_late(now: Continuation, request: EffectRequest) -> bool:
    """Return whether this is the answer to an inquiry whose gate was decided or closed meanwhile: it is dropped."""
    inquiry = request.inquiry if isinstance(request, ModelRequest) else None
    return inquiry is not None and open_inquiry(now, inquiry) is None


class KeptSlots:
    """Keeps the slot of a preview for the call that was previewed, until the step with the preview is written.

    Otherwise the call would wait for a slot once more. If that took longer than a preview stays current, the preview
    would be made again, and so on as long as the slots stay taken. `_used` are the slots in which the calls of the
    present step start.
    """

    def __init__(self) -> None:
        self._free: dict[_CallKey, Callable[[], None]] = {}
        self._used: dict[_CallKey, Callable[[], None]] = {}

    def take_over(self, request: EffectRequest, slot: KeptSlot) -> None:
        """Take the slot that a preview, which has ended, keeps."""
        if isinstance(request, PreviewRequest) and slot.take():
            self._free[(request.frame, request.call)] = slot.release

    def use(self, work: StartTool) -> bool:
        """Use the slot that is kept for this call. Return False if there is none."""
        release = self._free.pop((work.frame, work.call), None)
        if release is None:
            return False
        self._used[(work.frame, work.call)] = release
        return True

    def put_back(self, work: StartTool) -> bool:
        """Keep the slot of a call whose step is built again. Return False if it did not use one."""
        release = self._used.pop((work.frame, work.call), None)
        if release is None:
            return False
        self._free[(work.frame, work.call)] = release
        return True

    def release(self) -> None:
        """Free the slots that no call uses. The used ones now belong to their calls."""
        self._used.clear()
        while self._free:
            _, release = self._free.popitem()
            release()


def _record_result(
    request: ToolRequest, outcome: ToolResult | ToolFailure, started_at: datetime, worker: UUID
) -> None:
    with pool.pooled() as connection, connection.transaction():
        leases.lock(connection, request.run)
        late = LateOutcomeRow(
            run=request.run,
            frame=request.frame,
            call=request.call,
            attempt=request.attempt,
            started_at=started_at,
            worker=worker,
            at=pool.read_clock(connection),
            outcome="returned" if isinstance(outcome, ToolResult) else "failed",
            result=outcome.value if isinstance(outcome, ToolResult) else None,
            error=outcome.error if isinstance(outcome, ToolFailure) else "",
        )
        try:
            codec.require_encodable(build_arrival_event(late, gate=None))
        except NotJson as exc:  # a note in place of a result that no entry can carry
            note = make_lost_result(f"its result cannot be stored: {exc}")
            late = replace(late, result=note)
        if not late_outcomes.insert(connection, late):
            return
        with suppress(RunEnded):  # then the row is only evidence
            runs.notify_signal(connection, request.run)
    log.warning("Call %s: ended late, outcome recorded: %s", request.key, late.outcome)
    broker.dispatch(request.run)
    broker.notify_run(request.run, inbox=False)
