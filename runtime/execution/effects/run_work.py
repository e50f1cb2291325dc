"""The recorded work of one run: ready to start, waiting for the object store, or running."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from uuid import UUID

from runtime.core.commands import AnswerInquiry, CallModel, StartTool
from runtime.core.continuation import Continuation, Phase
from runtime.core.machine.calls.inquiries import open_inquiry
from runtime.errors import ObjectStoreDown
from runtime.execution.effects.outcomes import CANCELLED, DECIDED, RELEASED, STALE
from runtime.execution.effects.running import RunningEffect
from runtime.ports.effects import ModelRequest, PreviewRequest, ToolRequest
from runtime.store import leases
from runtime.store.records import PreviewCall, Work

READ_AGAIN = timedelta(seconds=1)  # after the object store could not be read, while effects run

EffectRequest = ModelRequest | PreviewRequest | ToolRequest


class RunWork:
    """The work of one run. `reads_at` is when contents are read again after the object store could not be read."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self.ready: list[Work] = []  # recorded, not launched yet
        self.running: set[RunningEffect] = set()
        self.reads_at: datetime | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no work is recorded or running, as at most steps: then nothing is to be listed."""
        return not self.ready and not self.running

    def requests(
        self, may_start: Callable[[Work], bool], request: Callable[[Work], EffectRequest]
    ) -> Iterator[EffectRequest]:
        """Yield the requests of the ready work, in its order, up to the first that may not start.

        Work whose contents cannot be read stays ready while other effects run. Raises ObjectStoreDown if none does: the
        run is then released, and due again after a pause. Nothing is lost: a model call has no intent.
        """
        at, down = 0, None
        while at < len(self.ready) and may_start(self.ready[at]):
            try:
                effect_request = request(self.ready[at])
            except ObjectStoreDown as exc:
                at, down = at + 1, exc
                continue
            del self.ready[at]
            yield effect_request
        is_busy = bool(self.running) or at < len(self.ready)
        if down is not None and not is_busy:
            raise down
        self.reads_at = None if down is None else self._clock() + READ_AGAIN

    def calling_models(self) -> set[str]:
        """Return the frames whose model call is recorded or running."""
        if self.is_idle:
            return set()
        calls = (work for work in self._model_requests() if work.inquiry is None)
        return {work.frame for work in self.ready if isinstance(work, CallModel)} | {
            work.frame for work in calls
        }

    def answering(self) -> set[UUID]:
        """Return the inquiries whose model call is recorded or running."""
        if self.is_idle:
            return set()
        waiting = {work.inquiry for work in self.ready if isinstance(work, AnswerInquiry)}
        return waiting | {
            work.inquiry for work in self._model_requests() if work.inquiry is not None
        }

    def previewing(self) -> set[tuple[str, str]]:
        """Return the calls whose preview is recorded or running."""
        if self.is_idle:
            return set()
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
        requests = (one.request for one in self.running)
        return (one for one in requests if isinstance(one, ModelRequest))


def why_not(work: Work, now: Continuation, *, is_ending: bool, at: datetime) -> str | None:
    """Return why recorded work must not start any more, None if it may.

    A call whose intent is older than a lease needs a new one, because people could already be offered "run again".
    """
    if now.phase is Phase.CANCELLING:
        return CANCELLED
    if is_ending:
        return RELEASED
    if isinstance(work, AnswerInquiry) and open_inquiry(now, work.inquiry) is None:
        return DECIDED
    if isinstance(work, StartTool):
        written = now.call(work.frame, work.call).started_at
        assert written is not None  # by its intent
        if at - written > timedelta(seconds=leases.lease_seconds()):
            return STALE
    return None


def is_too_late(now: Continuation, request: EffectRequest) -> bool:
    """Return whether this is the answer to an inquiry whose gate was decided or closed meanwhile: it is dropped."""
    inquiry = request.inquiry if isinstance(request, ModelRequest) else None
    return inquiry is not None and open_inquiry(now, inquiry) is None
