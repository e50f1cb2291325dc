"""The model of a fork reads that a person changed a value, and a person is asked about changed arguments."""

from typing import Any
from uuid import UUID

from agents.sdk import tool
from agents.sdk.scripts import Reply, Turn
from agents.testing import Flow, call, drive, say, together
from runtime.core.continuation import Continuation
from runtime.core.documents.codec import decode_entry
from runtime.core.events import ForkChange
from runtime.core.machine.calls.fork_changes import changed
from runtime.core.machine.forks import without_permissions
from runtime.core.machine.replay import initial, step
from tests.support.specs import spec_of

DONE: list[Any] = []
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
    worker.now = changed(without_permissions(worker.now), change, value, "eve")
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


def test_a_call_that_needs_no_approval_is_asked_about_once_a_person_changed_it() -> None:
    for change, asks in ((None, False), (ARGUMENTS, True)):
        both = together(call("look", at="a"), call("look", at="b"))
        run = drive(spec_of("a", tools=[look], model=None), {"name": "x"}, model=[both, told])
        worker = run._worker
        first = next(n for n, text in enumerate(worker.journal) if '"ModelReplied"' in text)
        now = _before_admission(worker.journal[: first + 1], worker.now.run)
        worker.now = now if change is None else changed(now, change, {"at": "c"}, "eve")
        worker.advance()
        run._go_on()
        assert [gate.args for gate in run.gates] == [{"at": "c"}] * asks


def _before_admission(journal: list[str], run: UUID) -> Continuation:
    """The state in which the model has replied, and no call has been checked."""
    now = initial(run)
    for text in journal:
        entry = decode_entry(text)
        events = [one for one in entry.events if one.type not in ("CallAdmitted", "ToolStarted")]
        now = step(now, events, head="", at=entry.at)
    return now
