"""A bounded pool for effects, with one deadline for each: tools run in threads, model calls hold none.

Every tool runs in a thread of its own, even a quick one. Running it in the runner's thread was measured and is no
faster. A thread cannot be ended. The runner stops waiting for a tool at its deadline, but the tool keeps
its slot until it returns. Once half of the tool slots of a process are lost in this way, the process must be
replaced.
"""

import heapq
import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from runtime.core.run.planning import AnswerInquiry, CallModel
from runtime.core.values.enums import EFFECT_CLASSES
from runtime.execution.effects.kept_replies import ReplyKeeper
from runtime.execution.effects.outcomes import make_timeout_outcome, mark_rolled_back
from runtime.execution.effects.perform import perform, start_model_call
from runtime.execution.effects.running import KeptSlot, RunningEffect
from runtime.execution.effects.transactional import transact
from runtime.ports.effects import (
    EffectHandler,
    ModelRequest,
    Outcome,
    PreviewRequest,
    ToolRequest,
    Unknown,
)
from runtime.store.steps import Work

log = logging.getLogger(__name__)

TOOL_SLOTS = 32
MODEL_SLOTS = 256
DEADLINE_SLACK = 1.0  # seconds after its deadline in which an effect may still end by itself
HUNG_SHARE = 2  # a process is replaced when 1/HUNG_SHARE of its tool slots are lost


class Slots:
    """A bounded number of effects of one kind, with a queue of runners that wait for a slot.

    A woken runner reserves its slots and wakes the next one; a runner that ends leaves the queue. So no runner waits
    while a slot is free, even if the one before it has ended or needs no more slots.
    """

    def __init__(self, number: int) -> None:
        self._number = self._free = number
        self.waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    def reserve(self, wake: Callable[[], None]) -> bool:
        """Reserve a slot, or join the queue to be woken."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if wake not in self.waiting:
                self.waiting.append(wake)
            return False

    def is_busy(self) -> bool:
        """Return whether any slot is reserved."""
        with self._lock:
            return self._free < self._number

    def release(self) -> None:
        """Free a slot, and wake the next runner."""
        with self._lock:
            self._free += 1
        if self.waiting:
            self.wake_next()

    def wake_next(self) -> None:
        """Wake the next runner if a slot is free."""
        with self._lock:
            wake = self.waiting.popleft() if self.waiting and self._free else None
        if wake is not None:
            wake()

    def cancel_wait(self, wake: Callable[[], None]) -> None:
        """Leave the queue."""
        with self._lock:
            if wake in self.waiting:
                self.waiting.remove(wake)
        if self.waiting:
            self.wake_next()


class EffectPool:
    """Starts effects in reserved slots, and submits one outcome of each to its runner by the deadline.

    A slot is reserved before an intent is recorded. `replace` is called once, when too many slots are lost.
    """

    def __init__(
        self,
        handler: EffectHandler,
        slots: int = TOOL_SLOTS,
        models: int = MODEL_SLOTS,
        replace: Callable[[], None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._number = slots
        self._tools, self._models = Slots(slots), Slots(models)
        self._threads = ThreadPoolExecutor(slots, thread_name_prefix="effect")
        self._deadlines = DeadlineTimer()
        self.replies = ReplyKeeper()
        self._replace, self._is_replaced = replace, False
        self._hung: dict[RunningEffect, str] = {}  # calls past their deadline, and their tools
        self._lock = threading.Lock()

    def reserve(self, work: Work, wake: Callable[[], None]) -> bool:
        """Reserve a slot for this work, or have `wake` called when one is free."""
        slots = self._models if isinstance(work, CallModel | AnswerInquiry) else self._tools
        return slots.reserve(wake)

    def release(self, work: Work) -> None:
        """Free the slot of work that was not launched."""
        slots = self._models if isinstance(work, CallModel | AnswerInquiry) else self._tools
        slots.release()

    def wake_next(self) -> None:
        """Wake the next runner. A woken runner calls this once it has reserved its slots."""
        for slots in (self._tools, self._models):
            if slots.waiting:
                slots.wake_next()

    def cancel_wait(self, wake: Callable[[], None]) -> None:
        """Leave the queues. A runner that ends calls this."""
        for slots in (self._tools, self._models):
            slots.cancel_wait(wake)

    def launch(self, effect: RunningEffect) -> None:
        """Start the effect in a reserved slot. Its outcome is submitted from another thread."""
        request = effect.request
        slack = 0 if isinstance(request, PreviewRequest) else DEADLINE_SLACK
        seconds = request.deadline + slack
        effect.cancel_deadline = self._deadlines.after(seconds, partial(self._overrun, effect))
        if isinstance(request, ModelRequest):
            finish = partial(self._finish_model_call, effect)
            effect.abort = start_model_call(self._handler, request, finish, effect.keep)
        else:
            self._threads.submit(self._run_tool, effect, request)

    def is_busy(self) -> bool:
        """Return whether an effect is running."""
        return self._tools.is_busy() or self._models.is_busy()

    def close(self) -> None:
        """Wait for the running tools and stop all threads."""
        self._threads.shutdown(wait=True)
        self._deadlines.close()
        self.replies.close()

    def _finish_model_call(self, effect: RunningEffect, outcome: Outcome) -> None:
        if effect.settle():
            effect.cancel_deadline()
            self._models.release()
            effect.finish(outcome)

    def _run_tool(self, effect: RunningEffect, request: ToolRequest | PreviewRequest) -> None:
        outcome = None
        try:
            if EFFECT_CLASSES[request.effect].commits_with_entry:
                outcome = transact(effect, partial(perform, self._handler))
            else:
                outcome = perform(self._handler, request)
        except BaseException as exc:  # or the runner would wait for an outcome without end
            log.exception("Call %s: its thread failed", request.key)
            outcome = Unknown(error=f"its thread failed: {type(exc).__name__}")
            if EFFECT_CLASSES[request.effect].commits_with_entry:
                outcome = mark_rolled_back(outcome)
        finally:
            in_time = self._free(effect, has_outcome=outcome is not None)
        if outcome is not None:
            if in_time:
                slot = KeptSlot(self._tools.release) if effect.keeps_slot else None
                effect.finish(outcome, slot)
            else:
                log.warning(
                    "Call %s: ended after its deadline: %s", request.key, type(outcome).__name__
                )
                effect.record_late(outcome)

    def _free(self, effect: RunningEffect, *, has_outcome: bool = True) -> bool:
        """Free a tool's slot, unless the effect is done and keeps it. Return whether the tool settles it first."""
        effect.cancel_deadline()
        with self._lock:
            first = effect.settle()
            self._hung.pop(effect, None)
        if not (effect.keeps_slot and first and has_outcome):
            self._tools.release()
        return first

    def _overrun(self, effect: RunningEffect) -> None:
        """Handle a passed deadline. Called in the thread of the deadlines, which must not block."""
        request = effect.request
        if isinstance(request, ModelRequest):
            self._finish_model_call(effect, make_timeout_outcome(request))
            effect.abort()
            return
        with self._lock:
            if not effect.settle():
                return
            # The limit of a preview is short, and it changes nothing.
            if not isinstance(request, PreviewRequest):
                self._hung[effect] = request.tool
            tools = list(self._hung.values())
        try:
            # In a thread of its own, because ending a transaction asks Postgres.
            threading.Thread(target=_give_up, args=(effect,), daemon=True).start()
        except RuntimeError:  # this process may start no more threads: the other deadlines wait
            _give_up(effect)
        log.error(
            "Tool %s: call %s did not end at its deadline and keeps its slot: %d of %d slots are lost",
            request.tool,
            request.key,
            len(tools),
            self._number,
        )
        if len(tools) * HUNG_SHARE >= self._number and not self._is_replaced:
            self._is_replaced = True
            log.critical(
                "This worker takes no more runs and must be replaced: %d of its %d tool slots are"
                " held by calls past their deadline (tools: %s)",
                len(tools),
                self._number,
                ", ".join(sorted(set(tools))),
            )
            self._replace()


class DeadlineTimer:
    """Calls back when a deadline has passed. A callback must be quick and must not raise."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # entered in C, unlike the condition
        self._changed = threading.Condition(self._lock)
        self._deadlines: list[tuple[float, int]] = []
        self._callbacks: dict[int, Callable[[], object]] = {}  # without those that were cancelled
        self._numbers = itertools.count()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="deadlines", daemon=True)
        self._thread.start()

    def after(self, seconds: float, callback: Callable[[], object]) -> Callable[[], object]:
        """Call `callback` after these seconds. The returned function cancels it."""
        number = next(self._numbers)
        with self._lock:
            self._callbacks[number] = callback
            heapq.heappush(self._deadlines, (time.monotonic() + seconds, number))
            if self._deadlines[0][1] == number:
                self._changed.notify()
        return partial(self._callbacks.pop, number, None)

    def close(self) -> None:
        """Stop the thread. Deadlines that have not passed are dropped."""
        with self._lock:
            self._closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while (callback := self._next()) is not None:
            try:
                callback()
            except Exception:  # or no later deadline would be noticed
                log.exception("A passed deadline was not handled")

    def _next(self) -> Callable[[], object] | None:
        """Wait for the next deadline and return its callback; None once the timer is closed."""
        with self._lock:
            while not self._closed:
                # Most deadlines are cancelled: the thread does not wake up for them.
                while self._deadlines and self._deadlines[0][1] not in self._callbacks:
                    heapq.heappop(self._deadlines)
                seconds = self._deadlines[0][0] - time.monotonic() if self._deadlines else None
                if seconds is None or seconds > 0:
                    self._changed.wait(seconds)
                elif callback := self._callbacks.pop(heapq.heappop(self._deadlines)[1], None):
                    return callback
        return None


def _give_up(effect: RunningEffect) -> None:
    effect.abort()
    effect.finish(make_timeout_outcome(effect.request))
