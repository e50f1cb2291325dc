"""The reducer rejects wrong events of a worker, a journal or a foreign file."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Call, CallState, Continuation, FrameState, Phase
from runtime.core.enums import EffectClass, GateKind, Verdict
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import (
    AgentChanged,
    BlobRef,
    CallAdmitted,
    Event,
    FrameClosed,
    GateDecided,
    GateOpened,
    OutcomeUnknown,
    Retried,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine.reducer import evolve
from tests.core.machine.events import STARTED, TERMS, after, frame_of, opened, options, replied
from tests.core.machine.walks import AT

CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}
ADMITTED = (replied("b", "b"), CallAdmitted(terms=options(delegate="b"), **CALL))
CHILD = opened("0.c1.0", agent="b")
AGAIN = RetryScheduled(attempt=1, cause="error", error="busy", **CALL)
UNKNOWN = OutcomeUnknown(attempt=1, error="cut", **CALL)


def refused(now: Continuation, event: Event) -> tuple[str, str]:
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, event)
    return raised.value.machine, raised.value.state


def test_an_illegal_transition_names_state_event_and_subject() -> None:
    with pytest.raises(IllegalTransition) as raised:
        evolve(after(*STARTED[2:]), CallAdmitted(terms=TERMS, **CALL))
    found = raised.value
    assert (found.machine, found.state) == ("CallState", CallState.STARTED)
    assert (found.trigger, found.subject) == ("CallAdmitted", "0/c1.0")


@pytest.mark.parametrize(
    ("event", "subject"),
    [
        (opened("0.c1.1", parent="0", call="c1.0"), "child frame 0.c1.1"),
        (opened("0.c1.0", call=None), "parent of frame 0.c1.0"),
        (opened("0.c1.0", parent=None), "parent of frame 0.c1.0"),
        (opened("7"), "parent of frame 7"),
        (opened("7.c1.0"), "frame 7"),
        (opened("0.c1.9"), "call 0/c1.9"),
    ],
)
def test_a_frame_opens_once_and_where_a_call_was_admitted_for_it(
    event: Event, subject: str
) -> None:
    now = after(*ADMITTED)
    with pytest.raises(UnknownSubject, match=f"there is no {subject}$"):
        evolve(now, event)
    refused(now, opened("0.c1.1"))
    now = evolve(now, CHILD)
    assert now.call("0", "c1.0").frame == "0.c1.0"
    assert refused(now, CHILD) == ("Frame", "open")


@pytest.mark.parametrize("half", [{}, {"parent": "0"}, {"call": "c1.0"}])
def test_a_root_frame_does_not_close_as_a_call(half: dict[str, Any]) -> None:
    now = after(replied(text="done"))
    now = now.with_frame(replace(now.frame("0"), **half))
    end = FrameClosed(frame="0", outcome="answered", content="done")
    assert refused(now, end) == ("Frame", "root")


@pytest.mark.parametrize(
    "late",
    [
        ToolReturned(attempt=1, result=1, **CALL),
        ToolFailed(attempt=1, error="no", **CALL),
        UNKNOWN,
        AGAIN,
    ],
)
def test_an_outcome_of_another_attempt_is_refused(late: Any) -> None:
    begin = ToolStarted(attempt=2, at=AT, **CALL)
    waiting = after(*STARTED[2:], AGAIN)
    assert refused(waiting, replace(begin, attempt=3)) == ("Attempt", "at attempt 1")
    now = evolve(waiting, begin)
    for attempt in (1, 3):
        with pytest.raises(IllegalTransition) as raised:
            evolve(now, replace(late, attempt=attempt))
        assert (raised.value.machine, raised.value.state) == ("Attempt", "at attempt 2")
        assert raised.value.trigger == f"attempt {attempt}"
    assert evolve(now, replace(late, attempt=2)).call("0", "c1.0").state is not CallState.STARTED
    assert refused(after(), replace(AGAIN, call=None, attempt=2)) == ("Attempt", "at attempt 1")


def changed(before: str, *writes: str) -> AgentChanged:
    return AgentChanged(
        frame="0", before=before, fingerprint="f2", prompt="p2", changes=(), writes=writes
    )


def test_a_frame_goes_on_under_the_version_that_follows_its_own() -> None:
    now = after()
    found = evolve(now, changed("f"))
    assert (found.frame("0").fingerprint, found.frame("0").prompt) == ("f2", "p2")
    assert found.agents == {"a": "f2"}
    assert refused(now, changed("f1")) == ("Frame", "of version f")


def test_only_calls_that_may_still_run_become_writes() -> None:
    read = replace(TERMS, effect=EffectClass.READ)
    now = after(
        replied("t", "t", "u", "t"),
        CallAdmitted(frame="0", call="c1.0", terms=read),
        ToolStarted(attempt=1, at=AT, **CALL),
        ToolReturned(attempt=1, result=1, **CALL),
        CallAdmitted(frame="0", call="c1.1", terms=read),
        CallAdmitted(frame="0", call="c1.2", terms=read),
        changed("f", "t"),
    )
    effects = [call.terms and call.terms.effect for call in now.frame("0").calls]
    assert effects == [EffectClass.READ, EffectClass.WRITE, EffectClass.READ, None]


def test_the_model_is_told_where_a_blob_is_and_who_reported_a_result() -> None:
    stored = BlobRef(digest="sha256:x", size=70_000, preview="x")
    now = after(*STARTED[2:], ToolReturned(attempt=1, result=None, stored=stored, **CALL))
    told = {"call": "c1.0", "tool": "t", "outcome": "returned", "content": None}
    assert now.frame("0").messages[-1] == {
        "role": "results",
        "results": [told | {"stored": {"digest": "sha256:x", "size": 70_000}}],
    }
    gate: dict[str, Any] = {"gate": UUID(int=7), **CALL}
    now = after(
        *STARTED[2:],
        UNKNOWN,
        GateOpened(kind=GateKind.IN_DOUBT, terms=TERMS, **gate),
        GateDecided(verdict=Verdict.HAPPENED, by="bea", reason="", result={"id": 1}, **gate),
    )
    reported = told | {"content": {"id": 1}, "reported_by": "bea"}
    assert now.frame("0").messages[-1]["results"] == [reported]


# A failed run that is tried again


def tried_again(*calls: Call, state: FrameState = FrameState.ACTING) -> Continuation:
    frame = frame_of(state=state, turn=1, calls=calls, outcome="no")
    failed = Continuation(
        run=UUID(int=1), phase=Phase.FAILED, left={"0": frame}, refusals=5, outcome="no"
    )
    return evolve(failed, Retried(by="ada", reason="mended"))


@pytest.mark.parametrize(
    ("attempt", "failures", "state"),
    [
        (0, 0, CallState.PROPOSED),
        (1, 1, CallState.PROPOSED),
        (1, 0, CallState.UNKNOWN),
        (3, 2, CallState.UNKNOWN),
    ],
)
def test_a_closed_call_is_judged_again_or_in_doubt(
    attempt: int, failures: int, state: CallState
) -> None:
    call = Call(
        id="c1.0",
        tool="t",
        args={},
        state=CallState.CLOSED,
        gate=UUID(int=2),
        attempt=attempt,
        failures=failures,
    )
    done = replace(call, id="c1.1", state=CallState.RETURNED, result="r")
    now = tried_again(call, done)
    assert now.call("0", "c1.0") == replace(call, state=state, gate=None)
    assert now.call("0", "c1.1") == done


def test_a_frame_whose_model_failed_asks_it_again() -> None:
    now = tried_again(state=FrameState.FAILED)
    frame = now.frame("0")
    assert (frame.state, frame.attempt, frame.outcome) == (FrameState.ASKING, 2, None)
    assert (now.phase, now.refusals, now.outcome) == (Phase.STARTED, 0, None)
