"""The reducer rejects wrong events of a worker, a journal or a foreign file."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import CallState, FrameState
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
    ModelFailed,
    OutcomeUnknown,
    RetryScheduled,
    ToolFailed,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine.reducer import evolve
from tests.core.machine.events import STARTED, TERMS, after, opened, options, replied
from tests.core.machine.walks import AT

CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}


DELEGATED = options(delegate="b")
ADMITTED = (replied("b", "b"), CallAdmitted(terms=DELEGATED, **CALL))
CHILD = opened("0.c1.0", agent="b", parent="0", call="c1.0")


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (opened("0.c1.1", parent="0", call="c1.0"), "child frame"),
        (opened("0.c1.0", parent="0"), "parent of frame"),
        (opened("0.c1.0", call="c1.0"), "parent of frame"),
        (opened("7"), "parent of frame"),
        (opened("7.c1.0", parent="7", call="c1.0"), "frame"),
        (opened("0.c1.9", parent="0", call="c1.9"), "call"),
    ],
)
def test_a_frame_opens_where_a_call_was_admitted_for_it(event: Event, kind: str) -> None:
    now = after(*ADMITTED)
    with pytest.raises(UnknownSubject) as raised:
        evolve(now, event)
    assert raised.value.kind == kind
    assert evolve(now, CHILD).call("0", "c1.0").frame == "0.c1.0"


def test_a_path_lists_agents_from_the_root_and_the_tool() -> None:
    now = after(*ADMITTED, CHILD)
    assert now.path("0.c1.0") == ("a", "b")
    assert now.path("0.c1.0", "t") == ("a", "b", "t")
    assert now.path("0") == ("a",)


def test_a_frame_opens_once_for_an_admitted_call() -> None:
    with pytest.raises(IllegalTransition):
        evolve(after(*ADMITTED, CHILD), CHILD)
    with pytest.raises(IllegalTransition):
        evolve(after(*ADMITTED), opened("0.c1.1", parent="0", call="c1.1"))


@pytest.mark.parametrize(
    ("last", "outcome", "state"),
    [
        (replied(frame="0.c1.0", text="below"), "answered", CallState.RETURNED),
        (ModelFailed(frame="0.c1.0", error="no"), "failed", CallState.FAILED),
    ],
)
def test_a_frame_closes_with_its_outcome(last: Event, outcome: Any, state: CallState) -> None:
    end = FrameClosed(frame="0.c1.0", outcome=outcome, content="below")
    other = replace(end, outcome="failed" if outcome == "answered" else "answered")
    with pytest.raises(IllegalTransition):
        evolve(after(*ADMITTED, CHILD), end)  # it has come to nothing yet
    now = after(*ADMITTED, CHILD, last)
    with pytest.raises(IllegalTransition):
        evolve(now, other)
    now = evolve(now, end)
    assert list(now.frames) == ["0"]
    assert (now.call("0", "c1.0").state, now.call("0", "c1.0").result) == (state, "below")


@pytest.mark.parametrize("half", [{}, {"parent": "0"}, {"call": "c1.0"}])
def test_a_root_frame_does_not_close_as_a_call(half: dict[str, Any]) -> None:
    now = after(replied(text="done"))
    now = now.with_frame(replace(now.frame("0"), **half))
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, FrameClosed(frame="0", outcome="answered", content="done"))
    assert (raised.value.machine, raised.value.state) == ("Frame", "root")


@pytest.mark.parametrize(
    "late",
    [
        ToolReturned(attempt=1, result=1, **CALL),
        ToolFailed(attempt=1, error="no", **CALL),
        OutcomeUnknown(attempt=1, error="cut", **CALL),
        RetryScheduled(attempt=1, cause="error", error="busy", **CALL),
    ],
)
def test_an_outcome_of_an_earlier_attempt_is_refused(late: Any) -> None:
    again = RetryScheduled(attempt=1, cause="error", error="busy", **CALL)
    now = after(*STARTED[2:], again, ToolStarted(attempt=2, at=AT, **CALL))
    for attempt in (1, 3):
        with pytest.raises(IllegalTransition) as raised:
            evolve(now, replace(late, attempt=attempt))
        assert (raised.value.machine, raised.value.state) == ("Attempt", "at attempt 2")
        assert raised.value.trigger == f"attempt {attempt}"
    assert evolve(now, replace(late, attempt=2)).call("0", "c1.0").state is not CallState.STARTED


def test_a_failed_attempt_at_a_reply_is_that_which_was_made() -> None:
    busy = RetryScheduled(frame="0", call=None, attempt=1, cause="error", error="busy")
    now = after()
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, replace(busy, attempt=2))
    assert raised.value.machine == "Attempt"
    assert evolve(now, busy).frame("0").state is FrameState.RETRYING


def changed(before: str, *writes: str) -> AgentChanged:
    return AgentChanged(
        frame="0", before=before, fingerprint="f2", prompt="p2", changes=(), writes=writes
    )


def test_a_frame_goes_on_under_the_version_that_follows_its_own() -> None:
    now = after()
    found = evolve(now, changed("f"))
    assert (found.frame("0").fingerprint, found.frame("0").prompt) == ("f2", "p2")
    assert found.agents == {"a": "f2"}
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, changed("f1"))
    assert (raised.value.state, raised.value.subject) == ("of version f", "0")
    over = now.with_frame(replace(now.frame("0"), state=FrameState.CLOSED))
    with pytest.raises(IllegalTransition) as raised:
        evolve(over, changed("f"))
    assert raised.value.state == "closed"


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


def test_the_model_is_told_the_place_and_size_of_a_blob() -> None:
    stored = BlobRef(digest="sha256:x", size=70_000, preview="x")
    now = after(*STARTED[2:], ToolReturned(attempt=1, result=None, stored=stored, **CALL))
    assert now.frame("0").messages[-1] == {
        "role": "results",
        "results": [
            {
                "call": "c1.0",
                "tool": "t",
                "outcome": "returned",
                "content": None,
                "stored": {"digest": "sha256:x", "size": 70_000},
            }
        ],
    }
    plain = after(*STARTED[2:], ToolReturned(attempt=1, result={"id": 1}, **CALL))
    assert plain.frame("0").messages[-1]["results"] == [
        {"call": "c1.0", "tool": "t", "outcome": "returned", "content": {"id": 1}}
    ]


def test_the_model_is_told_that_a_person_reported_a_result() -> None:
    gate: dict[str, Any] = {"gate": UUID(int=7), **CALL}
    now = after(
        *STARTED[2:],
        OutcomeUnknown(attempt=1, error="cut", **CALL),
        GateOpened(kind=GateKind.IN_DOUBT, terms=TERMS, **gate),
        GateDecided(verdict=Verdict.HAPPENED, by="bea", reason="", result={"id": 1}, **gate),
    )
    (result,) = now.frame("0").messages[-1]["results"]
    assert (result["content"], result["reported_by"]) == ({"id": 1}, "bea")
