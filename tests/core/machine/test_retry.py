"""The state of a failed run when it is tried again."""

from uuid import UUID

import pytest

from runtime.core.continuation import Call, CallState, Continuation, FrameState, Phase
from runtime.core.errors import IllegalTransition
from runtime.core.events import Retried
from runtime.core.machine.reducer import evolve
from tests.core.machine.events import frame_of

AGAIN = Retried(by="ada", reason="mended")


def _run(*calls: Call, state: FrameState = FrameState.ACTING, **more: object) -> Continuation:
    frame = frame_of(state=state, turn=1, calls=calls, outcome="no")
    given = {"phase": Phase.FAILED, "refusals": 5, "outcome": "no", **more}
    return Continuation(run=UUID(int=1), left={"0": frame}, **given)  # type: ignore[arg-type]


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
    found = evolve(_run(call), AGAIN).call("0", "c1.0")
    assert (found.state, found.gate, found.attempt) == (state, None, attempt)


@pytest.mark.parametrize("state", sorted(set(CallState) - {CallState.CLOSED}))
def test_every_other_call_stays_as_it_is(state: CallState) -> None:
    call = Call(id="c1.0", tool="t", args={}, state=state, attempt=1, result="r")
    assert evolve(_run(call), AGAIN).call("0", "c1.0") == call


def test_a_frame_whose_model_failed_asks_it_again() -> None:
    frame = evolve(_run(state=FrameState.FAILED, refusals=5), AGAIN).frame("0")
    assert (frame.state, frame.attempt, frame.outcome) == (FrameState.ASKING, 2, None)


def test_refusals_count_from_nothing_again() -> None:
    now = evolve(_run(cancelled_by=""), AGAIN)
    assert (now.phase, now.refusals, now.outcome) == (Phase.STARTED, 0, None)


@pytest.mark.parametrize("phase", sorted(set(Phase) - {Phase.FAILED}))
def test_no_other_run_is_tried_again(phase: Phase) -> None:
    with pytest.raises(IllegalTransition):
        evolve(_run(phase=phase), AGAIN)
