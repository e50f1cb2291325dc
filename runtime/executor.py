"""Performs effects through their port, in threads of their own; the outcome is a value."""

import functools
import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import assert_never

from runtime import killpoints
from runtime.core.continuation import Continuation
from runtime.core.digest import require_json
from runtime.core.effects import AskModel, StartTool
from runtime.core.errors import NotJson
from runtime.core.events import (
    Event,
    ModelFailed,
    ModelReplied,
    ToolFailed,
    ToolReturned,
)
from runtime.core.ids import depth_of, idempotency_key
from runtime.core.retries import unanswered, uncertain, undone
from runtime.ports import (
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
from runtime.transactional import Handoff, transact

log = logging.getLogger(__name__)

SLOTS = 32
MODEL_DEADLINE_SECONDS = 120.0


class Executor:
    """A bounded number of effects at once. A slot is reserved before an intent is written down."""

    def __init__(self, handler: EffectHandler, slots: int = SLOTS) -> None:
        self._handler = handler
        self._free = slots
        self._waiting: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="effect")

    def reserve(self, wake: Callable[[], None]) -> bool:
        """Take a slot, or be woken when one is free."""
        with self._lock:
            if self._free:
                self._free -= 1
                return True
            if wake not in self._waiting:
                self._waiting.append(wake)
            return False

    def give_back(self) -> None:
        """Return a slot, used or not."""
        with self._lock:
            self._free += 1
            wake = self._waiting.popleft() if self._waiting else None
        if wake is not None:
            wake()

    def launch(
        self, request: ModelRequest | ToolRequest, deliver: Callable[[Outcome], None]
    ) -> None:
        """Perform in a reserved slot and deliver the outcome from that thread."""
        self._pool.submit(self._perform, request, deliver)

    def launch_transactional(
        self, request: ToolRequest, deliver: Callable[[Handoff], None]
    ) -> None:
        """Perform inside a transaction of that thread; the result is handed over before it commits."""
        self._pool.submit(self._transact, request, deliver)

    def close(self) -> None:
        self._pool.shutdown(wait=True)

    def _perform(
        self, request: ModelRequest | ToolRequest, deliver: Callable[[Outcome], None]
    ) -> None:
        try:
            outcome = perform(self._handler, request)
        finally:
            self.give_back()
        deliver(outcome)

    def _transact(self, request: ToolRequest, deliver: Callable[[Handoff], None]) -> None:
        handoff = Handoff(request)
        try:
            transact(functools.partial(perform, self._handler), handoff, deliver)
        finally:
            self.give_back()


def perform(handler: EffectHandler, request: ModelRequest | ToolRequest) -> Outcome:
    """The one call of the port. What is not JSON, or raises after all, becomes an outcome that says so."""
    kind = request.effect if isinstance(request, ToolRequest) else "model"
    killpoints.pass_by("starting", kind, depth_of(request.frame))
    try:
        outcome = handler.perform(request)
        _require_json(outcome)
        killpoints.pass_by("performed", kind, depth_of(request.frame))
        return outcome
    except NotJson as exc:
        problem = f"what it returned is not JSON: {exc}"
    except Exception as exc:
        log.exception("the effect handler raised on %s", request)
        problem = f"{type(exc).__name__}: {exc}"
        if isinstance(request, ToolRequest):
            return Unknown(error=problem)
    if isinstance(request, ModelRequest):
        return ModelFault(error=problem)
    return ToolFault(error=problem)


def request_for(now: Continuation, work: AskModel | StartTool) -> ModelRequest | ToolRequest:
    """The request that the committed state asks for."""
    frame = now.frame(work.frame)
    if isinstance(work, AskModel):
        return ModelRequest(
            run=now.run,
            frame=frame.id,
            agent=frame.agent,
            messages=frame.messages,
            deadline=MODEL_DEADLINE_SECONDS,
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
        case ModelAnswer():
            return ModelReplied(
                frame=request.frame,
                reply=outcome.reply,
                text=outcome.text,
                calls=outcome.calls,
                usage=outcome.usage,
            )
        case ModelFault() | ToolFault():
            return unanswered(
                frame,
                outcome.error,
                again=outcome.again,
                after=outcome.after,
                at=at,
                chance=chance,
            )
        case Unknown():
            return ModelFailed(frame=request.frame, error=outcome.error)
        case ToolResult():
            return ModelFailed(frame=request.frame, error="a tool's result instead of a reply")
        case _ as never:
            assert_never(never)


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
            return undone(frame, call, outcome.error, after=outcome.after, at=at, chance=chance)
        case ToolFault():
            return ToolFailed(
                frame=frame, call=call.id, attempt=request.attempt, error=outcome.error
            )
        case Unknown() | ModelFault():
            return uncertain(frame, call, outcome.error, at=at, chance=chance)
        case ModelAnswer():
            error = "a model's reply instead of a result"
            return uncertain(frame, call, error, at=at, chance=chance)
        case _ as never:
            assert_never(never)


def _require_json(outcome: Outcome) -> None:
    match outcome:
        case ModelAnswer():
            require_json(outcome.reply, "reply")
            require_json(outcome.text, "text")
            for proposal in outcome.calls:
                require_json(proposal.args, f"arguments of {proposal.tool}")
        case ToolResult():
            require_json(outcome.value, "result")
        case _:
            return
