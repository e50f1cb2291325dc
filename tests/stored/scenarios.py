"""Runs at rest and under way, as documents: what every version of the code has been able to write."""

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from pydantic import BaseModel, TypeAdapter

from agents.sdk import NotDone, Preview, RetryPolicy, ToolContext, agent, tool
from agents.sdk.spec import AgentSpec
from agents.testing import Turn, call, replies, say, together
from agents.testing.worker import Worker
from runtime.core.continuation import CallState, Continuation
from runtime.core.documents.codec import encode_continuation
from runtime.core.events import Remembered, RunStarted
from runtime.core.machine.calls.retries import on_no_reply
from runtime.ports.approvals import ReviewSnapshot

PICTURE = TypeAdapter(ReviewSnapshot)
INPUT = {"number": "A-1"}


class Order(BaseModel):
    number: str


@tool(effect="read")
def price(number: str) -> int:
    """Says what an order cost."""
    return 40


@tool(approval=True, risk="high", sentence="Pay {euros} euros back for {number}", expires_in=3600)
def refund(number: str, euros: int) -> dict[str, str]:
    """Pays back."""
    return {"paid": number}


@tool(effect="idempotent", approval=True, sentence="Close {number}", expires_in=7200)
def close(number: str) -> str:
    """Closes an order."""
    return "closed"


@tool(effect="idempotent", retry=RetryPolicy(attempts=3, base=10.0, ceiling=60.0))
def book(context: ToolContext, number: str) -> str:
    """Finds nobody there at first."""
    if context.attempt == 1:
        raise NotDone("nobody there", after=30)
    return "booked"


@tool()
def post(number: str) -> str:
    """Sends a letter."""
    return "sent"


@tool(risk=lambda euros: "high" if euros > 20 else "low", approval=lambda euros: euros > 10)
def spend(euros: int) -> int:
    """Spends money."""
    return euros


@tool(approval=True, preview=lambda: Preview(summary="Writes it off"))
def scrap(number: str) -> str:
    """Writes an order off."""
    return "gone"


@tool(effect="read")
def note(text: str) -> str:
    """Says something to the requester."""
    return text


NOTE = replace(note, held=True)


def _last(turn: Turn) -> Any:
    names = ("price", "refund", "close", "book", "post", "spend", "scrap", "ask_person", "desk")
    heard = [turn.result(name) for name in names]
    return say(", ".join(f"{one.tool} {one.outcome}" for one in heard if one is not None))


def desk(*steps: Any, **given: Any) -> AgentSpec:
    return agent(
        name="desk",
        description="Does it.",
        instructions="Do it.",
        input=Order,
        model=replies(*steps, _last),
        tools=[price, refund, close, book, post, *given.pop("more", ())],
        **given,
    )


def boss() -> AgentSpec:
    return agent(
        name="boss",
        description="Has it done.",
        instructions="Have it done.",
        input=Order,
        model=replies(call("desk", **INPUT), _last),
        subagents=[desk(PAY)],
    )


PAY = call("refund", number="A-1", euros=40)
BOOK = call("book", **INPUT)
POST = call("post", **INPUT)
BOTH = together(PAY, call("close", **INPUT), call("price", **INPUT))


def document_of(worker: Worker) -> dict[str, Any]:
    """Everything a worker that never heard of the run needs, as JSON."""
    continuation = encode_continuation(worker.now)
    return {
        "schema": max(json.loads(text)["schema"] for text in (continuation, *worker.journal)),
        "clock": worker.clock.isoformat(),
        "journal": list(worker.journal),
        "continuation": continuation,
        "gates": [
            PICTURE.dump_python(worker.shown[one.gate], mode="json") for one in worker.now.pending
        ],
    }


def _gates(number: int) -> Callable[[Continuation], bool]:
    return lambda now: len(now.pending) == number


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A run of an agent, made anew by `spec`, in its first state that `shows` it; `then` something happens to it."""

    spec: Callable[[], AgentSpec]
    shows: Callable[[Continuation], bool] = field(default=_gates(1))
    crash_before: tuple[str, ...] = ()
    then: Callable[[Worker], None] = field(default=lambda worker: None)
    makers: tuple[str, ...] = ()
    thread: str | None = None
    memory: tuple[Remembered, ...] = ()


def _call_is(state: CallState) -> Callable[[Continuation], bool]:
    return lambda now: any(c.state is state for frame in now.frames.values() for c in frame.calls)


def be_busy(worker: Worker, **more: Any) -> None:
    known: Any = {"retry_after": None, "at": worker.clock, "jitter": 0.5, "timeout": timedelta(1)}
    known |= more
    frame = worker.now.frame("0")
    worker.advance(on_no_reply(frame, "the provider is busy", retryable=True, **known))


SCENES = {
    "approval": Scene(spec=lambda: desk(call("price", **INPUT), PAY)),
    "two_approvals": Scene(spec=lambda: desk(BOTH), shows=_gates(2)),
    "nested_approval": Scene(spec=boss),
    "in_doubt": Scene(spec=lambda: desk(POST), crash_before=("post",)),
    "call_started": Scene(spec=lambda: desk(POST), shows=_call_is(CallState.STARTED)),
    "call_retrying": Scene(spec=lambda: desk(BOOK), shows=_call_is(CallState.RETRYING)),
    "model_retrying": Scene(
        spec=lambda: desk(call("price", **INPUT)),
        shows=lambda now: now.root is not None,
        then=be_busy,
    ),
    "cancelling": Scene(
        spec=lambda: desk(BOOK),
        shows=_call_is(CallState.STARTED),
        then=lambda worker: worker.cancel(by="ada", reason="no longer needed"),
    ),
}


def written(scenes: dict[str, Scene]) -> Iterator[tuple[str, dict[str, Any]]]:
    for name, scene in scenes.items():
        spec = scene.spec()
        worker = Worker(spec, scene.crash_before, ())
        worker.advance(
            RunStarted(
                agent=spec.name,
                input=INPUT,
                requester="ada",
                makers=scene.makers,
                thread=scene.thread,
                memory=scene.memory,
            )
        )
        while not scene.shows(worker.now):
            worker._perform(worker._ready.popleft())
        scene.then(worker)
        yield name, document_of(worker)
