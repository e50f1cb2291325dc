"""A running effect: its outcome goes to the runner, or to the table of late outcomes."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from runtime.execution.effects import late
from runtime.ports.effects import Abort, ModelRequest, Outcome, PreviewRequest, ToolRequest


def no_abort() -> None:
    """Abort an effect that cannot be aborted: do nothing."""


@dataclass(slots=True, kw_only=True, eq=False)
class RunningEffect:
    """One launched effect. It is settled once, by the first of its own end and its deadline.

    `submit` puts a message into the runner's queue. `started_at` is the time of the intent, `worker` this process; a
    late outcome is recorded with both. `abort` ends a model call, or the transaction of a transactional call.
    """

    request: ModelRequest | PreviewRequest | ToolRequest
    submit: Callable[["EffectFinished"], None]
    started_at: datetime | None = None
    worker: UUID | None = None
    abort: Abort = no_abort
    cancel_deadline: Callable[[], None] = no_abort
    _settled: threading.Lock = field(default_factory=threading.Lock)

    @property
    def place(self) -> tuple[str, str | None]:
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

    def finish(self, outcome: Outcome) -> None:
        """Submit the outcome of a settled effect to the runner."""
        self.submit(EffectFinished(effect=self, outcome=outcome))

    def record_late(self, outcome: Outcome) -> None:
        """Record an outcome that no runner journals. Never raises."""
        if isinstance(self.request, ToolRequest) and self.started_at and self.worker:
            late.record(self.request, outcome, started_at=self.started_at, worker=self.worker)


@dataclass(frozen=True, slots=True, kw_only=True)
class EffectFinished:
    """The message to the runner with the outcome of one effect."""

    effect: RunningEffect
    outcome: Outcome

    def discard(self) -> None:
        """Drop the outcome: the runner has ended and does not journal it."""
        self.effect.record_late(self.outcome)
