"""The recorded work of one run: ready to start, waiting for the object store, or running; and its kept slots."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta
from uuid import UUID

from runtime.core.run.continuation import Continuation, Phase
from runtime.core.run.gates import open_inquiry
from runtime.core.run.planning import AnswerInquiry, CallModel, StartTool
from runtime.errors import ObjectStoreDown
from runtime.execution.effects.outcomes import CANCELLED, DECIDED, RELEASED, STALE
from runtime.execution.effects.running import EffectFinished, RunningEffect
from runtime.ports.effects import ModelRequest, PreviewRequest, ToolRequest
from runtime.store import leases
from runtime.store.step_records import PreviewCall, Work

READ_AGAIN = timedelta(seconds=1)  # after the object store could not be read, while effects run
EffectRequest = ModelRequest | PreviewRequest | ToolRequest
_CallKey = tuple[str, str]


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

    def await_contents(self, unreadable: Sequence[ObjectStoreDown]) -> None:
        """Have the contents of ready work that could not be read read again after a pause, while other effects run.

        Raises ObjectStoreDown if none does: the run is then released, and due again after a pause. Nothing is lost: a
        model call has no intent.
        """
        is_busy = bool(self.running) or len(self.ready) > len(unreadable)
        if unreadable and not is_busy:
            raise unreadable[-1]
        self.reads_at = self._clock() + READ_AGAIN if unreadable else None

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
        requests = (effect.request for effect in self.running)
        return (request for request in requests if isinstance(request, ModelRequest))


def reason_not_to_start(
    work: Work, now: Continuation, *, is_ending: bool, at: datetime
) -> str | None:
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


class KeptSlots:
    """Keeps the slot of a preview for the call that was previewed, until the step with the preview is written.

    Otherwise the call would wait for a slot once more. If that took longer than a preview stays current, the preview
    would be made again, and so on as long as the slots stay taken. `_used` are the slots in which the calls of the
    present step start.
    """

    def __init__(self) -> None:
        self._free: dict[_CallKey, Callable[[], None]] = {}
        self._used: dict[_CallKey, Callable[[], None]] = {}

    def take_over(self, message: EffectFinished) -> None:
        """Take the slot of a preview that has ended, if it keeps one."""
        request, slot = message.effect.request, message.slot
        if slot is not None and isinstance(request, PreviewRequest) and slot.take():
            self._free[(request.frame, request.call)] = slot.release

    def use(self, work: Work) -> bool:
        """Use the slot that is kept for this call. Return False if there is none."""
        return isinstance(work, StartTool) and _move_slot(work, self._free, self._used)

    def put_back(self, work: Work) -> bool:
        """Keep the slot of a call whose step is built again. Return False if it did not use one."""
        return isinstance(work, StartTool) and _move_slot(work, self._used, self._free)

    def release(self) -> None:
        """Free the slots that no call uses. The used ones now belong to their calls."""
        self._used.clear()
        while self._free:
            _, release = self._free.popitem()
            release()


def _move_slot(
    work: StartTool,
    source: dict[_CallKey, Callable[[], None]],
    target: dict[_CallKey, Callable[[], None]],
) -> bool:
    release = source.pop((work.frame, work.call), None)
    if release is None:
        return False
    target[(work.frame, work.call)] = release
    return True
