"""Runs at rest and under way, and the documents in which they are stored."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any
from unittest.mock import patch
from uuid import UUID

from pydantic import BaseModel, TypeAdapter

from agents.sdk import Holds, NotDone, Preview, RetryPolicy, ToolContext, agent, tool
from agents.sdk.spec import AgentSpec
from agents.testing import Turn, call, replies, say, together
from agents.testing.approvals import ApprovalStub
from agents.testing.worker import BEGINNING, MemoryWorker
from agents.tools.questions import ask_person
from agents.tools.timers import wait_for
from runtime.control.edit import edit, is_previewed
from runtime.core.documents import codec, continuations
from runtime.core.documents.continuations import Conversations
from runtime.core.run.continuation import Continuation, GivenReply
from runtime.core.run.events import (
    AllowanceUse,
    ForkChange,
    Forked,
    GateExtended,
    Proposal,
    Remembered,
    RunStarted,
)
from runtime.core.run.forks import change_value, fork_document, without_permissions
from runtime.core.run.reducer import make_initial_state
from runtime.core.run.retries import on_no_reply
from runtime.core.values.enums import CallState, Decision, FailureCause, Verdict
from runtime.ports.approvals import Allowed, ReviewSnapshot
from runtime.store.tables.signals import ExtensionSignal, MessageSignal, PauseSignal

PICTURE = TypeAdapter(ReviewSnapshot)
EXTENSION = TypeAdapter(GateExtended)
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


NOTE = replace(note, holds_text=True)


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


def document_of(worker: MemoryWorker) -> dict[str, Any]:
    """Everything a worker that never heard of the run needs, as JSON. `brief` is None if it cannot be."""
    conversations = Conversations()
    for text in worker.journal:
        conversations.read(text)
    brief = conversations.shorten_continuation(worker.now)
    return {
        "clock": worker.clock.isoformat(),
        "journal": [codec.encode_stored_text(text) for text in worker.journal],
        "continuation": continuations.encode_continuation(worker.now),
        "brief": brief and continuations.encode_continuation(brief.state, brief.lengths),
        "gates": [
            PICTURE.dump_python(worker.snapshots[one.gate], mode="json")
            for one in worker.now.pending
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
    then: Callable[[MemoryWorker], None] = field(default=lambda worker: None)
    makers: tuple[str, ...] = ()
    thread: str | None = None
    memory: tuple[Remembered, ...] = ()


def _call_is(state: CallState) -> Callable[[Continuation], bool]:
    return lambda now: any(c.state is state for frame in now.frames.values() for c in frame.calls)


def be_busy(worker: MemoryWorker, **more: Any) -> None:
    known: Any = {"retry_after": None, "at": worker.clock, "jitter": 0.5, "timeout": timedelta(1)}
    known |= more
    frame = worker.now.frame("0")
    worker.advance(on_no_reply(frame, "the provider is busy", retryable=True, **known))


def _decided(verdict: Verdict, **more: Any) -> Callable[[MemoryWorker], None]:
    def decide(worker: MemoryWorker) -> None:
        [pending] = worker.now.pending
        worker.decide(pending.gate, Decision(verdict=verdict, by="bea", **more))
        worker.go_on()

    return decide


def _edited(args: dict[str, Any]) -> Callable[[MemoryWorker], None]:
    def decide(worker: MemoryWorker) -> None:
        gate = worker.snapshots[worker.now.pending[0].gate]
        shown = {name: getattr(gate, name) for name in ("tool", "schema", "path", "effect", "args")}
        edited = edit(**shown, new_args=args)
        if is_previewed(gate.preview):
            edited = replace(edited, preview=worker.preview_edit(gate, edited.args))
        _decided(Verdict.EDIT, edit=edited)(worker)

    return decide


def _extended(worker: MemoryWorker) -> None:
    [pending] = worker.now.pending
    assert pending.expires_at is not None
    extension = GateExtended(
        gate=pending.gate,
        frame=pending.frame,
        call=pending.call,
        by="bea",
        reason="the supplier answers tomorrow",
        before=pending.expires_at,
        until=pending.expires_at + timedelta(days=1),
    )
    document = EXTENSION.dump_json(extension).decode()
    worker.advance(ExtensionSignal(id=1002, document=document))


def _allowed(worker: MemoryWorker) -> None:
    use = AllowanceUse(id=UUID(int=1), number=1, of=2, by=("bea", "cora"))
    allowed = Allowed(use=use, proof=("{}", "00", "k1"))
    allow = lambda shown, taken: allowed if shown.args["euros"] == 20 else None  # noqa: E731
    with patch.object(ApprovalStub, "allow", side_effect=allow):
        _decided(Verdict.REQUEST_CHANGES, reason="pay 30")(worker)
        _decided(Verdict.APPROVE)(worker)


def _forked(worker: MemoryWorker) -> None:
    """Make the run a fork in which Eve gave the next reply."""
    pay = (Proposal(tool="refund", args={"number": "A-1", "euros": 30}),)
    reply = GivenReply(by="eve", text="30 will do.", calls=pay)
    place = ForkChange(kind="reply", frame="0")
    now = change_value(without_permissions(worker.now), place, reply, "eve")
    fork = Forked(of=worker.now.run, position=1, by="eve", state=fork_document(now), change=place)
    worker.journal.clear()
    worker._work.ready.clear()
    worker.now = make_initial_state(UUID(int=9))
    worker.advance(RunStarted(agent="desk", input=INPUT, requester="eve"), fork)
    worker.go_on()


WAIT = call("wait_for", event="paid", match=INPUT, until="2030-01-05T09:00:00Z")
PAUSED = PauseSignal(id=1000, by="ada", reason="the books are being closed")
REMARK = MessageSignal(id=1001, by="bea", text="it was the wrong order", reviewer=True)
TOLD = Remembered(
    run=UUID(int=7), kind="answered", by="desk", at=BEGINNING, digest="sha256:" + "0" * 64
)
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
    "hold": Scene(spec=lambda: desk(call("price", **INPUT), PAY, holds=Holds(every=1))),
    "paused": Scene(spec=lambda: desk(PAY), then=lambda worker: worker.advance(PAUSED)),
    "waiting": Scene(
        spec=lambda: desk(WAIT, PAY, more=[wait_for]),
        shows=lambda now: bool(now.list_all_waiting()),
    ),
    "message": Scene(
        spec=lambda: desk(PAY),
        then=lambda worker: worker.write(by="ada", text="it was the wrong order"),
    ),
    "denied": Scene(  # the model repeats the denied call first
        spec=lambda: desk(PAY, PAY, call("refund", number="A-1", euros=30)),
        then=_decided(Verdict.DENY, reason="too much"),
    ),
    "answered": Scene(
        spec=lambda: desk(PAY, call("refund", number="A-1", euros=30)),
        then=_decided(Verdict.ANSWER, result={"paid": "by hand"}),
    ),
    "judged": Scene(spec=lambda: desk(call("spend", euros=30), more=[spend])),
    "previewed": Scene(spec=lambda: desk(call("scrap", **INPUT), more=[scrap])),
    "edited": Scene(  # the model repeats the call that a person changed
        spec=lambda: desk(PAY, PAY), then=_edited({"number": "A-1", "euros": 30})
    ),
    "revised": Scene(  # the model repeats the call first
        spec=lambda: desk(PAY, PAY, call("refund", number="A-1", euros=30)),
        then=_decided(Verdict.REQUEST_CHANGES, reason="pay 30"),
    ),
    "allowed": Scene(  # an allowance passes the payment after that
        spec=lambda: desk(
            *(call("refund", number="A-1", euros=euros) for euros in (40, 30, 20, 10))
        ),
        then=_allowed,
    ),
    "asked": Scene(  # the next worker answers
        spec=lambda: desk(PAY),
        then=lambda worker: worker.ask(gate=worker.now.pending[0].gate, by="bea", text="Why?"),
    ),
    "extended": Scene(spec=lambda: desk(PAY), then=_extended),
    "question": Scene(
        spec=lambda: desk(call("ask_person", question="Which one?"), more=[ask_person()])
    ),
    "made": Scene(spec=lambda: desk(PAY), makers=("dora",)),
    "remembering": Scene(spec=lambda: desk(PAY), thread="t", memory=(TOLD,)),
    "reviewed": Scene(spec=lambda: desk(PAY), then=lambda worker: worker.advance(REMARK)),
    "rate_limited": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: now.root is not None,
        then=lambda worker: be_busy(worker, cause=FailureCause.LIMIT, model="openai:a"),
    ),
    "cut_off": Scene(
        spec=lambda: desk(PAY),
        shows=lambda now: now.root is not None,
        then=lambda worker: be_busy(worker, partial="The pri", tokens=2, model="openai:a"),
    ),
    "planned": Scene(spec=lambda: desk(call("plan", write=["Pay", "Say so"]), PAY, plan=True)),
    "prompted": Scene(spec=lambda: replace(desk(PAY), prompt_name="shop/desk")),
    "listed": Scene(spec=lambda: replace(boss(), items=True)),
    "said": Scene(spec=lambda: desk(call("note", text="Soon."), PAY, more=[NOTE])),
    "bounded": Scene(spec=lambda: replace(boss(), items=True, at_once=1)),
    "given": Scene(spec=lambda: desk(PAY), shows=lambda now: now.root is not None, then=_forked),
    "bound": Scene(
        spec=lambda: desk(call("scrap", **INPUT), PAY, more=[scrap]),
        then=_edited({"number": "A-2"}),
    ),
}


def written() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, scene in SCENES.items():
        spec = scene.spec()
        worker = MemoryWorker(spec, scene.crash_before, ())
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
            worker._perform(worker._work.ready.pop(0))
        scene.then(worker)
        yield name, document_of(worker)
