"""A running effect: its outcome goes to the runner, or to the table of late outcomes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runtime.execution.effects import late
from runtime.ports.effects import Abort, Keep, ModelRequest, Outcome, PreviewRequest, ToolRequest


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
            late.record(self.request, outcome, started_at=self.started_at, worker=self.worker)


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
