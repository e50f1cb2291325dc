"""The model of a fork reads that a person changed a value, and a person is asked about changed arguments."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel

from agents.llm.call import call_model
from agents.llm.messages import to_provider
from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn
from agents.testing import Flow, call, drive, say, together
from agents.tools.requester import tell_requester
from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import Continuation, GivenReply
from runtime.core.run.events import ForkChange, Proposal
from runtime.core.run.forks import change_value, without_permissions
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.values.enums import FailureCause
from runtime.execution.effects.perform import perform
from runtime.keyring.sealing import open_text, seal, seal_held_text
from runtime.ports.effects import ModelAnswer, ModelFailure
from tests.support.specs import Frame, handler_of, spec_of

DONE: list[Any] = []
REPLY = ForkChange(kind="reply", frame="0")
ARGUMENTS = ForkChange(kind="arguments", frame="0", call="c1.1")
RESULT = ForkChange(kind="result", frame="0", call="c1.0")


@tool(effect="read")
def look(at: str) -> str:
    """Looks."""
    DONE.append(at)
    return at


@tool(approval=True, sentence="Pay {euros}")
def pay(euros: int) -> int:
    """Pays."""
    DONE.append(euros)
    return euros


def told(turn: Turn) -> Reply:
    return say("; ".join(f"{one.content} {one.reported} {one.edited}" for one in turn.results))


def forked(*model: Any, change: ForkChange, value: Any) -> Flow:
    """A run at its gate, made into a fork in which Eve has changed this."""
    DONE.clear()
    run = drive(spec_of("a", tools=[look, pay], model=None), {"name": "x"}, model=[*model, told])
    worker = run._worker
    worker.now = change_value(without_permissions(worker.now), change, value, "eve")
    worker.advance()
    return run._go_on()


BOTH = together(call("look", at="a"), call("pay", euros=3))


def test_a_changed_result_reads_as_a_person_s_and_nothing_is_repeated() -> None:
    run = forked(BOTH, change=RESULT, value="b")
    assert run.approve().output == "b True None; 3 False None"
    assert DONE == ["a", 3]


def test_changed_arguments_are_asked_and_the_model_reads_them() -> None:
    run = forked(BOTH, change=ARGUMENTS, value={"euros": 2})
    assert (run.gate.args, run.gate.preview) == ({"euros": 2}, {"changed_by": "eve"})
    assert run.approve().output == "a False None; 2 False {'euros': 2}"
    assert DONE == ["a", 2]


def test_changed_arguments_that_do_not_fit_are_refused() -> None:
    run = forked(BOTH, change=ARGUMENTS, value={"euros": "many"})
    assert "arguments.euros: Input should be a valid integer" in str(run.output)
    assert DONE == ["a"]


class Sum(BaseModel):
    euros: int


@tool(secret_args=["pin"], effect="read")
def dial(pin: str) -> str:
    """Dials."""
    DONE.append(pin)
    return "heard"


def replied(text: str, *calls: Proposal, first: str = "look", **spec: Any) -> Flow:
    """A run that has made a call, made into a fork in which Eve gave the next reply."""
    DONE.clear()
    agent = spec_of("a", **{"tools": [look, pay, dial], "model": None, **spec})
    begun = {"look": call("look", at="a"), "dial": call("dial", pin="1234")}[first]
    run = drive(agent, {"name": "x"}, model=[begun, call("pay", euros=1), told])
    worker = run._worker
    last = next(n for n, entry in enumerate(worker.journal) if '"ToolReturned"' in entry)
    now = make_initial_state(worker.now.run)
    for entry in map(decode_entry, worker.journal[: last + 1]):
        now = step(now, entry.events, head="", at=entry.at)
    sealed = now.call("0", "c1.0").args
    calls = tuple(replace(one, args=sealed) if one.args is None else one for one in calls)
    reply = GivenReply(by="eve", text=text, calls=calls)
    worker.now = change_value(without_permissions(now), REPLY, reply, "eve")
    worker.advance()
    return run._go_on()


def test_a_given_reply_is_read_as_one_of_the_model() -> None:
    assert replied("It is done.").output == "It is done."
    assert replied('{"euros": 2}', output=Sum).output == {"euros": 2}
    held = replied("It is done.", answer=True)
    assert (held.status, held.gate.tool) == ("suspended", "final_answer")
    assert "It is done." not in held._worker.journal[-1]
    assert held.approve().output == "It is done."
    assert DONE == ["a"]
    sealed = seal_held_text("It is secret.")
    answer = replied(sealed, tools=[look, pay, tell_requester()]).output
    assert open_text(str(answer)) == sealed


def test_the_calls_of_a_given_reply_are_asked_and_the_model_reads_whose_reply_it_was() -> None:
    run = replied("", Proposal(tool="look", args={"at": "b"}), Proposal(tool="no", args={}))
    assert (run.gate.args, run.gate.preview) == ({"at": "b"}, {"changed_by": "eve"})
    assert DONE == ["a"]
    frame = run._worker.now.frame("0")
    reply = to_provider(spec_of("a", tools=[look]), frame.messages, calls=frame.calls)[-1]
    assert [getattr(part, "content", part.part_kind) for part in reply.parts] == [
        "A person gave this reply in your place, with its calls if there are any.",
        "tool-call",
        "tool-call",
    ]
    output = str(run.approve().output)
    assert "b False None" in output, "the arguments are not marked as changed"
    assert "there is no tool named no" in output


def test_no_provider_is_asked_for_a_given_reply() -> None:
    frame = Frame(handler_of(spec_of("a", model="openai:gpt-5-mini")), "a", {"name": "x"})
    request = replace(frame.request(), fork_reply=GivenReply(by="eve", text="Done."))
    answer = perform(frame.handler, request)
    assert isinstance(answer, ModelAnswer)
    assert (answer.text, answer.model, answer.cost) == ("Done.", "", 0)


@pytest.mark.parametrize("models", [("openai:a", "openai:b"), ()])
def test_no_model_is_blamed_for_a_given_reply_that_cannot_be_read(models: tuple[str, ...]) -> None:
    agent = replace(spec_of("a", tools=[dial], model=None), models=models)
    request = Frame(handler_of(agent), "a", {"name": "x"}).request()
    error = "the reply that a person gave cannot be read: NotSealed"
    unread = ModelFailure(error=error, cause=FailureCause.REQUEST)
    error = "key 'no' for secrets is not in the ring"
    waits = ModelFailure(error=error, retryable=True, retry_after=60.0, cause=FailureCause.WORKER)
    for pin, expected in ((seal("1234", b"elsewhere"), unread), ({"$secret": "no"}, waits)):
        given = GivenReply(by="eve", text="", calls=(Proposal(tool="dial", args={"pin": pin}),))
        outcomes: list[Any] = []
        call_model(agent, replace(request, fork_reply=given), outcomes.append)
        assert outcomes == [expected]


def test_a_secret_of_a_given_reply_reaches_its_tool_alone() -> None:
    run = replied("", Proposal(tool="dial", args=None), first="dial")
    assert DONE == ["1234"]
    run.approve()
    assert DONE == ["1234", "1234"]
    assert not [entry for entry in run._worker.journal if "1234" in entry]


def test_a_call_that_needs_no_approval_is_asked_about_once_a_person_changed_it() -> None:
    for change, asks in ((None, False), (ARGUMENTS, True)):
        both = together(call("look", at="a"), call("look", at="b"))
        run = drive(spec_of("a", tools=[look], model=None), {"name": "x"}, model=[both, told])
        worker = run._worker
        first = next(n for n, text in enumerate(worker.journal) if '"ModelReplied"' in text)
        now = _before_admission(worker.journal[: first + 1], worker.now.run)
        worker.now = now if change is None else change_value(now, change, {"at": "c"}, "eve")
        worker.advance()
        run._go_on()
        assert [gate.args for gate in run.gates] == [{"at": "c"}] * asks


def _before_admission(journal: list[str], run: UUID) -> Continuation:
    """The state in which the model has replied, and no call has been checked."""
    now = make_initial_state(run)
    for text in journal:
        entry = decode_entry(text)
        events = [one for one in entry.events if one.type not in ("CallAdmitted", "ToolStarted")]
        now = step(now, events, head="", at=entry.at)
    return now
