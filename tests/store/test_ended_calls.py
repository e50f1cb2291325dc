"""The outcomes that a step records for lists: of calls that a person decided about, by the events that end them."""

from typing import Any
from uuid import uuid4

import pytest

from runtime.core.run import events as e
from runtime.core.run.continuation import Call, Continuation, Frame, FrameState, Phase
from runtime.core.values.enums import Verdict
from runtime.ports.approvals import CallOutcome, EndedCall
from runtime.reads import outcomes
from runtime.store import steps
from runtime.store.steps import Records

GATE = uuid4()
CALL: dict[str, Any] = {"frame": "0", "call": "c2.0"}
TRIED: dict[str, Any] = {**CALL, "attempt": 1}
DECIDED: dict[str, Any] = {**CALL, "gate": GATE, "by": "bea", "reason": ""}


def state(**call: Any) -> Continuation:
    """Make a run whose agent acts in its second turn, in which a sub-agent works."""
    calls = (
        Call(id="c1.0", tool="t", args={}, gate=GATE),
        Call(id="c2.0", tool="t", args={}, **call),
    )
    given: dict[str, Any] = {"agent": "a", "fingerprint": "", "prompt": ""}
    root = Frame(id="0", turn=2, state=FrameState.ACTING, calls=calls, **given)
    child = Frame(id="0.c2.0", parent="0", call="c2.0", **given)
    return Continuation(run=uuid4(), phase=Phase.STARTED, frames={"0": root, "0.c2.0": child})


@pytest.mark.parametrize(
    ("event", "outcome"),
    [
        (e.ToolReturned(**TRIED, result=1), CallOutcome.DONE),
        (e.ToolFailed(**TRIED, error="x"), CallOutcome.FAILED),
        (e.OutcomeUnknown(**TRIED, error="x"), CallOutcome.IN_DOUBT),
        (e.CallRefused(**CALL, reason="x"), CallOutcome.FAILED),
        (e.WaitEnded(**CALL, outcome="arrived"), CallOutcome.DONE),
        (e.WaitEnded(**CALL, outcome="timed_out"), CallOutcome.DONE),
        (e.WaitEnded(**CALL, outcome="refused"), CallOutcome.FAILED),
        (e.WaitEnded(**CALL, outcome="closed"), None),
        (e.WaitEnded(**CALL), None),
        (e.GateDecided(**DECIDED, verdict=Verdict.HAPPENED), CallOutcome.DONE),
        (e.GateDecided(**DECIDED, verdict=Verdict.GIVE_UP), CallOutcome.FAILED),
        (e.GateDecided(**DECIDED, verdict=Verdict.ANSWER), CallOutcome.ANSWERED),
        (e.GateDecided(**DECIDED, verdict=Verdict.APPROVE), None),
        (e.GateDecided(**DECIDED, verdict=Verdict.DENY), None),
        (e.FrameClosed(frame="0.c2.0", outcome="answered", content=1), CallOutcome.DONE),
        (e.FrameClosed(frame="0.c2.0", outcome="failed", content="x"), CallOutcome.FAILED),
        (e.FrameClosed(frame="0", outcome="failed", content="x"), None),
        (
            e.ToolReturned(frame="0", call="c2.7", attempt=1, result=1),
            None,
        ),  # proposed in this step
        (e.ToolReturned(frame="0.c9.0", call="c1.0", attempt=1, result=1), None),
    ],
    ids=lambda value: getattr(value, "type", value),
)
def test_the_events_that_end_a_call(event: e.Event, outcome: CallOutcome | None) -> None:
    records = Records()
    records.add(event)
    expected = [EndedCall(gate=GATE, **CALL, outcome=outcome)] if outcome else []
    assert list(records.ended(state(gate=GATE))) == expected
    assert records.ended(state()) == ()  # no person decided about it


@pytest.mark.parametrize("verdict", Verdict)
def test_lists_label_each_verdict_by_its_outcome(verdict: Verdict) -> None:
    event = e.GateDecided(**DECIDED, verdict=verdict)
    label = outcomes._make_outcome_label(event)
    assert (label and label.label) == {
        None: None,
        CallOutcome.DONE: "Done, as reported",
        CallOutcome.ANSWERED: "Answered, not made",
        CallOutcome.FAILED: "Failed",
    }[steps._classify_outcome(event)]
