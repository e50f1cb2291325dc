"""Performs effects through their port, away from the runs' threads; the outcome is a value."""

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import assert_never

from django.conf import settings

from runtime.core.compaction import cut
from runtime.core.contents import FilledIn
from runtime.core.continuation import Continuation, Frame
from runtime.core.decisions import Blame
from runtime.core.effects import AskModel, StartTool
from runtime.core.events import (
    Compacted,
    Event,
    ModelFailed,
    ModelReplied,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
)
from runtime.core.ids import idempotency_key
from runtime.core.limits import MAX_SUMMARY
from runtime.core.messages import unheard_of
from runtime.core.retries import unanswered, uncertain, undone
from runtime.execution.effects.deadlines import Alarm
from runtime.execution.effects.overruns import Call, Overruns
from runtime.execution.effects.perform import begin, nothing_to_end, perform
from runtime.execution.effects.transactional import Handoff, transact
from runtime.ports import (
    Abort,
    Braked,
    EffectHandler,
    ModelAnswer,
    ModelFault,
    ModelRequest,
    Outcome,
    ToolFault,
    ToolRequest,
    ToolResult,
    Unknown,
)

log = logging.getLogger(__name__)

TOOL_SLOTS = 32
MODEL_SLOTS = 256
LATE = 1.0  # seconds after its deadline at which an effect that has not ended is waited for no more


class Slots:
    """A bounded number of effects of one kind at once.

    Whoever is woken takes what it needs and passes on; whoever goes leaves the line. So nobody waits beside a free
    slot, be the one before it dead, or in need of none any more.
    """

    def __init__(self, number: int) -> None:
        self._number = self._free = number
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()

    def reserve(self, wake: Callable[[], None]) -> bool:
        """Take a slot, or be woken when one is free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if wake not in self._waiting:
                self._waiting.append(wake)
            return False

    def is_busy(self) -> bool:
        """Whether any is taken."""
        with self._lock:
            return self._free < self._number

    def give_back(self) -> None:
        """Return a slot, used or not."""
        with self._lock:
            self._free += 1
        self.pass_on()

    def pass_on(self) -> None:
        """Wake the next one if there is a slot for it."""
        if not self._waiting:
            return
        with self._lock:
            wake = self._waiting.popleft() if self._waiting and self._free else None
        if wake is not None:
            wake()

    def leave(self, wake: Callable[[], None]) -> None:
        """Wait no more."""
        with self._lock:
            if wake in self._waiting:
                self._waiting.remove(wake)
        self.pass_on()


class Executor:
    """Tools run in threads; model calls wait in no thread, so there may be many more of them.

    A slot is reserved before an intent is written down. `replace` is called once calls past their deadline hold so
    many slots that this process must be replaced.
    """

    def __init__(
        self,
        handler: EffectHandler,
        slots: int = TOOL_SLOTS,
        models: int = MODEL_SLOTS,
        replace: Callable[[], None] = lambda: None,
    ) -> None:
        self._handler = handler
        self._overruns = Overruns(slots, replace)
        self._tools, self._models = Slots(slots), Slots(models)
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="effect")
        self._alarm = Alarm()

    def reserve(self, work: AskModel | StartTool, wake: Callable[[], None]) -> bool:
        """Take a slot for this work, or be woken when one is free."""
        return self._slots(work).reserve(wake)

    def give_back(self, work: AskModel | StartTool) -> None:
        """Return the slot of work that was not launched."""
        self._slots(work).give_back()

    def pass_on(self) -> None:
        """To be called by whoever may have been woken, once it has reserved what it needs."""
        for slots in (self._tools, self._models):
            slots.pass_on()

    def leave(self, wake: Callable[[], None]) -> None:
        """To be called by whoever may wait for a slot, and goes."""
        for slots in (self._tools, self._models):
            slots.leave(wake)

    def launch(
        self,
        request: ModelRequest | ToolRequest,
        deliver: Callable[[Outcome], None],
        late: Callable[[Outcome], None] = lambda outcome: None,
    ) -> Abort:
        """Perform in a reserved slot, and deliver the outcome from another thread, at the deadline at the latest.

        The returned function ends a model call early; a tool cannot be stopped, and keeps its thread until it ends.
        `late` gets an outcome that comes after the deadline.
        """
        if isinstance(request, ModelRequest):
            return self._ask(request, deliver)
        once, call = _Once(deliver), Call(tool=request.tool, key=request.key)

        def give_up() -> None:
            once(_late(request))
            self._overruns.past_deadline(call)

        drop = self._alarm.after(request.deadline + LATE, give_up)
        self._pool.submit(self._perform, request, once, late, drop, call)
        return nothing_to_end

    def launch_transactional(
        self, request: ToolRequest, deliver: Callable[[Handoff], None]
    ) -> None:
        """Perform inside a transaction of that thread; the result is handed over before it commits.

        A call that has not ended by its deadline is rolled back, and keeps its thread until it ends.
        """
        call, handoff = Call(tool=request.tool, key=request.key), Handoff(request)

        def give_up() -> None:
            self._overruns.past_deadline(call)
            if (
                handoff.take()
            ):  # in a thread of its own: the timer thread must not wait for Postgres
                end = threading.Thread(target=lambda: deliver(handoff.cut_off()), daemon=True)
                end.start()

        drop = self._alarm.after(request.deadline + LATE, give_up)
        self._pool.submit(self._transact, handoff, deliver, drop, call)

    def is_busy(self) -> bool:
        """Whether an effect is under way."""
        return self._tools.is_busy() or self._models.is_busy()

    def close(self) -> None:
        self._pool.shutdown(wait=True)
        self._alarm.close()

    def _slots(self, work: AskModel | StartTool) -> Slots:
        return self._models if isinstance(work, AskModel) else self._tools

    def _ask(self, request: ModelRequest, deliver: Callable[[Outcome], None]) -> Abort:
        def settle(outcome: Outcome) -> None:
            drop()
            self._models.give_back()
            deliver(outcome)

        def give_up() -> None:
            once(_late(request))
            abort()

        once = _Once(settle)
        drop = self._alarm.after(request.deadline + LATE, give_up)
        abort = begin(self._handler, request, once)
        return abort

    def _perform(
        self,
        request: ToolRequest,
        once: "_Once",
        late: Callable[[Outcome], None],
        drop: Callable[[], None],
        call: Call,
    ) -> None:
        try:
            outcome = perform(self._handler, request)
        finally:
            self._end(call)
        drop()
        if not once(outcome):
            log.warning("%s ended long after its deadline: %s", request.key, type(outcome).__name__)
            late(outcome)

    def _transact(
        self,
        handoff: Handoff,
        deliver: Callable[[Handoff], None],
        drop: Callable[[], None],
        call: Call,
    ) -> None:
        try:
            transact(functools.partial(perform, self._handler), handoff, deliver)
        finally:
            drop()
            self._end(call)

    def _end(self, call: Call) -> None:
        """A tool's thread is free again."""
        self._overruns.end(call)
        self._tools.give_back()


class _Once:
    """Takes the first outcome of several."""

    def __init__(self, deliver: Callable[[Outcome], None]) -> None:
        self._deliver = deliver
        self._first = threading.Lock()

    def __call__(self, outcome: Outcome) -> bool:
        """Whether this outcome was the first, and is delivered."""
        if not self._first.acquire(blocking=False):
            return False
        self._deliver(outcome)
        return True


def _late(request: ModelRequest | ToolRequest) -> ModelFault | Unknown:
    error = f"it did not end within {request.deadline:g} s"
    if isinstance(request, ModelRequest):
        return ModelFault(error=error, again=True, blame=Blame.TIME)
    return Unknown(error=error, blame=Blame.TIME)


def request_for(
    now: Continuation, work: AskModel | StartTool, filled: FilledIn
) -> ModelRequest | ToolRequest:
    """The request that the committed state asks for; `filled` has the results that are stored by their hash."""
    frame = now.frame(work.frame)
    if isinstance(work, AskModel):
        unheard = () if work.summary else unheard_of(now, frame.id)
        messages = filled.messages(frame)[: cut(frame) if work.summary else None]
        return ModelRequest(
            run=now.run,
            frame=frame.id,
            agent=frame.agent,
            messages=messages + unheard,
            deadline=frame.terms.deadline,
            model=frame.model,
            ticket=frame.ticket,
            summary=work.summary,
            unheard=len(unheard),
            instructions=frame.instructions,
            calls=frame.calls,
        )
    call = frame.find(work.call)
    assert call.terms is not None  # a call is judged before it is started
    return ToolRequest(
        run=now.run,
        frame=frame.id,
        call=call.id,
        attempt=work.attempt,
        agent=frame.agent,
        tool=call.tool,
        args=call.args,
        key=idempotency_key(now.run, frame.id, call.id),
        deadline=call.terms.deadline,
        effect=call.terms.effect,
        requester=now.requester,
        business_key=now.business_key,
        input=frame.messages[0]["content"] if frame.messages else None,
    )


def event_of(
    now: Continuation,
    request: ModelRequest | ToolRequest,
    outcome: Outcome,
    *,
    at: datetime,
    chance: float,
) -> Event:
    """What the outcome means to the run; `chance` in [0, 1) spreads the retries."""
    if isinstance(request, ModelRequest):
        return _model_event(now, request, outcome, at, chance)
    return _tool_event(now, request, outcome, at, chance)


def _model_event(
    now: Continuation, request: ModelRequest, outcome: Outcome, at: datetime, chance: float
) -> Event:
    frame = now.frame(request.frame)
    match outcome:
        case ModelAnswer() if request.summary:
            return _summed_up(frame, outcome)
        case ModelAnswer():
            return ModelReplied(
                frame=request.frame,
                reply=outcome.reply,
                text=outcome.text,
                calls=outcome.calls,
                output=outcome.output,
                output_kept=outcome.output_kept,
                usage=outcome.usage,
                model=outcome.model,
                cost=outcome.cost,
                heard=request.unheard,
            )
        case ModelFault():
            return unanswered(
                frame,
                outcome.error,
                again=outcome.again,
                after=outcome.after,
                at=at,
                chance=chance,
                blame=outcome.blame,
                model=outcome.model,
                other=outcome.other,
                partial=outcome.partial,
                said=outcome.said,
                patience=timedelta(seconds=settings.ABEYANCE_OUTAGE_SECONDS),
            )
        case Braked():
            return RetryScheduled(
                frame=request.frame,
                call=None,
                attempt=frame.attempt,
                cause="brake",
                error=f"{outcome.model} was not asked: its provider wants fewer requests",
                until=outcome.until,
                model=outcome.model,
                ticket=outcome.ticket,
                since=frame.outage.since if frame.outage else at,
            )
        case Unknown() | ToolFault():
            return ModelFailed(frame=request.frame, error=outcome.error)
        case ToolResult():
            return ModelFailed(frame=request.frame, error="a tool's result instead of a reply")
        case _ as never:
            assert_never(never)


def _summed_up(frame: Frame, answer: ModelAnswer) -> Compacted | ModelFailed:
    """What stands for earlier messages. Without it the frame could only grow, so it fails."""
    if not answer.text.strip() or len(answer.text) > MAX_SUMMARY:
        error = f"the summary has {len(answer.text)} characters, from 1 to {MAX_SUMMARY} are taken"
        return ModelFailed(frame=frame.id, error=error)
    return Compacted(
        frame=frame.id,
        until=cut(frame),
        summary=answer.text,
        by=frame.compaction.by if frame.compaction else "model",
        usage=answer.usage,
        model=answer.model,
        cost=answer.cost,
    )


def _tool_event(
    now: Continuation, request: ToolRequest, outcome: Outcome, at: datetime, chance: float
) -> Event:
    frame, call = request.frame, now.call(request.frame, request.call)
    match outcome:
        case ToolResult():
            return ToolReturned(
                frame=frame, call=call.id, attempt=request.attempt, result=outcome.value
            )
        case ToolFault() if outcome.again:
            return undone(
                frame,
                call,
                outcome.error,
                after=outcome.after,
                at=at,
                chance=chance,
                blame=outcome.blame,
            )
        case ToolFault():
            return ToolFailed(
                frame=frame, call=call.id, attempt=request.attempt, error=outcome.error
            )
        case Unknown() | ModelFault():
            return uncertain(frame, call, outcome.error, at=at, chance=chance, blame=outcome.blame)
        case ModelAnswer() | Braked():
            error = "a model's reply instead of a result"
            return uncertain(frame, call, error, at=at, chance=chance)
        case _ as never:
            assert_never(never)
