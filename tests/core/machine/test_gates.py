"""Gates of a frame itself: one of a kind at a time, with their own verdicts, and none where nothing is left."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Continuation
from runtime.core.enums import FRAME_GATES, GateKind, Verdict
from runtime.core.errors import IllegalTransition, UnknownSubject
from runtime.core.events import (
    Event,
    GateClosed,
    GateDecided,
    GateOpened,
    OutcomeArrived,
    OutcomeUnknown,
)
from runtime.core.machine.gates import is_blocked_by_gate
from runtime.core.machine.reducer import evolve
from tests.core.machine.events import STARTED, TERMS, after
from tests.core.machine.walks import AT

HALT: dict[str, Any] = {"frame": "0", "call": ""}
GATE, OTHER = UUID(int=1), UUID(int=2)
CLOSED = GateClosed(gate=GATE, reason="over", **HALT)


def opened(kind: GateKind, gate: UUID = GATE) -> GateOpened:
    return GateOpened(gate=gate, kind=kind, terms=None, at=AT, **HALT)


def decided(verdict: Verdict) -> GateDecided:
    return GateDecided(gate=GATE, verdict=verdict, by="bea", reason="", **HALT)


def under_way(*events: Event) -> Continuation:
    return after(*STARTED[2:], *events)


def refused(now: Continuation, event: Event) -> tuple[str, str, str]:
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, event)
    return raised.value.machine, raised.value.state, raised.value.subject


@pytest.mark.parametrize("kind", sorted(FRAME_GATES))
def test_a_frame_is_halted_until_a_reviewer_decides(kind: GateKind) -> None:
    now = under_way(opened(kind))
    is_hold = kind is GateKind.HOLD
    assert is_blocked_by_gate(now, "0")
    assert is_blocked_by_gate(now, "0.c1.0") is (kind is GateKind.LIMIT)
    assert [(one.gate, one.kind) for one in now.pending] == [(GATE, kind)]
    assert (now.frame("0").cleared_at, now.frame("0").cleared) == (AT if is_hold else None, -1)
    for end in (decided(Verdict.CONTINUE), decided(Verdict.STOP), CLOSED):
        over = evolve(now, end)
        assert over.pending == ()
        assert not is_blocked_by_gate(over, "0")
        clears = is_hold and end == decided(Verdict.CONTINUE)
        assert over.frame("0").cleared == (1 if clears else -1)


@pytest.mark.parametrize("kind", sorted(FRAME_GATES))
def test_a_frame_is_halted_for_one_reason_of_a_kind_at_a_time(kind: GateKind) -> None:
    now = under_way(opened(kind))
    assert refused(now, opened(kind, OTHER)) == ("Gate", f"{kind} is open", "0")
    (other, another) = sorted(FRAME_GATES - {kind})
    assert refused(now, opened(other)) == ("Gate", "open", str(GATE))
    assert len(evolve(now, opened(another, OTHER)).pending) == 2
    refused(now, decided(Verdict.APPROVE))


def test_a_gate_of_a_call_halts_no_frame() -> None:
    assert refused(under_way(), opened(GateKind.APPROVAL))[:2] == ("Gate", "without a call")


def test_only_an_open_gate_is_decided_closed_or_settled() -> None:
    call: dict[str, Any] = {"frame": "0", "call": "c1.0"}
    unknown = OutcomeUnknown(attempt=1, error="cut", **call)
    asked = GateOpened(gate=GATE, kind=GateKind.IN_DOUBT, terms=TERMS, **call)
    late = OutcomeArrived(attempt=1, gate=GATE, outcome="returned", at=AT, result=1, **call)
    assert evolve(under_way(unknown, asked), late).pending == ()
    held = under_way(opened(GateKind.HOLD))
    for now, event in (
        (held, replace(decided(Verdict.CONTINUE), gate=OTHER)),
        (held, replace(CLOSED, gate=OTHER)),
        (under_way(unknown, asked), replace(late, gate=OTHER)),
        (under_way(unknown), late),
    ):
        with pytest.raises(UnknownSubject) as raised:
            evolve(now, event)
        named = (raised.value.kind, raised.value.subject)
        assert named == ("open gate", str(getattr(event, "gate", None)))
