"""Keeps the slot of a preview for the call that was previewed, until the step with the preview is written.

Otherwise the call would wait for a slot once more. If that took longer than a preview counts, the preview would be made
again, and so on as long as the slots stay taken.
"""

from collections.abc import Callable

from runtime.core.commands import StartTool
from runtime.execution.effects.running import EffectFinished
from runtime.ports.effects import PreviewRequest
from runtime.store.records import Work

_Place = tuple[str, str]


class KeptSlots:
    """The kept slots of one run. `_used` are those in which the calls of the present step start."""

    def __init__(self) -> None:
        self._free: dict[_Place, Callable[[], None]] = {}
        self._used: dict[_Place, Callable[[], None]] = {}

    def take_over(self, message: EffectFinished) -> None:
        """Take the slot of a preview that has ended, if it keeps one."""
        request, slot = message.effect.request, message.slot
        if slot is not None and isinstance(request, PreviewRequest) and slot.take():
            self._free[(request.frame, request.call)] = slot.release

    def use(self, work: Work) -> bool:
        """Use the slot that is kept for this call. Return False if there is none."""
        return isinstance(work, StartTool) and _moved(work, self._free, self._used)

    def put_back(self, work: Work) -> bool:
        """Keep the slot of a call whose step is built again. Return False if it did not use one."""
        return isinstance(work, StartTool) and _moved(work, self._used, self._free)

    def release(self) -> None:
        """Free the slots that no call uses. The used ones now belong to their calls."""
        self._used.clear()
        while self._free:
            _, release = self._free.popitem()
            release()


def _moved(
    work: StartTool,
    source: dict[_Place, Callable[[], None]],
    target: dict[_Place, Callable[[], None]],
) -> bool:
    release = source.pop((work.frame, work.call), None)
    if release is None:
        return False
    target[(work.frame, work.call)] = release
    return True
