"""Gates of a frame itself: one of a kind at a time, with their own verdicts, and none where nothing is left."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.continuation import Continuation, FrameState
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
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import STARTED, TERMS
from tests.core.machine.walks import AT

HALT: dict[str, Any] = {"frame": "0", "call": ""}
KINDS = sorted(FRAME_GATES)


def gate(number: int) -> UUID:
    return UUID(int=number)


def opened(kind: GateKind, number: int = 1) -> GateOpened:
    return GateOpened(gate=gate(number), kind=kind, terms=None, at=AT, **HALT)


def decided(verdict: Verdict, number: int = 1) -> GateDecided:
    return GateDecided(gate=gate(number), verdict=verdict, by="bea", reason="", **HALT)


def closed(number: int = 1) -> GateClosed:
    return GateClosed(gate=gate(number), reason="over", **HALT)


def under_way(*events: Event) -> Continuation:
    return fold(initial(UUID(int=9)), [*STARTED, *events])


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_halted_until_a_reviewer_decides(kind: GateKind) -> None:
    for end in (decided(Verdict.CONTINUE), decided(Verdict.STOP), closed()):
        now = under_way(opened(kind))
        assert is_blocked_by_gate(now, "0")
        assert [(one.gate, one.kind) for one in now.pending] == [(gate(1), kind)]
        assert is_blocked_by_gate(now, "0.c1.0") is (kind is GateKind.LIMIT)
        after = evolve(now, end)
        assert after.pending == ()
        assert not is_blocked_by_gate(after, "0")


@pytest.mark.parametrize("kind", KINDS)
def test_a_frame_is_halted_for_one_reason_of_a_kind_at_a_time(kind: GateKind) -> None:
    now = under_way(opened(kind))
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, opened(kind, 2))
    assert raised.value.machine == "Gate"
    for number, other in enumerate(KINDS, 3):
        if other is not kind:
            now = evolve(now, opened(other, number))
    assert len(now.pending) == len(KINDS)
    assert len(evolve(evolve(now, closed()), opened(kind, 9)).pending) == len(KINDS)


def test_an_open_gate_is_not_opened_again() -> None:
    with pytest.raises(IllegalTransition) as raised:
        evolve(under_way(opened(GateKind.HOLD)), opened(GateKind.LIMIT))
    assert (raised.value.state, raised.value.subject) == ("open", str(gate(1)))


@pytest.mark.parametrize("kind", [GateKind.APPROVAL, GateKind.IN_DOUBT])
def test_a_gate_of_a_call_halts_no_frame(kind: GateKind) -> None:
    with pytest.raises(IllegalTransition) as raised:
        evolve(under_way(), opened(kind))
    assert (raised.value.machine, raised.value.state) == ("Gate", "without a call")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("verdict", sorted(set(Verdict) - {Verdict.CONTINUE, Verdict.STOP}))
def test_a_halt_is_not_decided_as_a_call_is(kind: GateKind, verdict: Verdict) -> None:
    with pytest.raises(IllegalTransition):
        evolve(under_way(opened(kind)), decided(verdict))


@pytest.mark.parametrize("kind", KINDS)
def test_only_a_continued_hold_clears_the_frame(kind: GateKind) -> None:
    now = under_way(opened(kind))
    is_hold = kind is GateKind.HOLD
    assert now.frame("0").cleared_at == (AT if is_hold else None)
    assert now.frame("0").cleared == -1
    after = evolve(now, decided(Verdict.CONTINUE)).frame("0")
    assert after.cleared == (now.frame("0").turn if is_hold else -1)
    assert evolve(now, decided(Verdict.STOP)).frame("0").cleared == -1


def test_only_an_open_gate_is_decided_or_closed() -> None:
    now = under_way(opened(GateKind.HOLD))
    for event in (decided(Verdict.CONTINUE, 2), closed(2)):
        with pytest.raises(UnknownSubject) as raised:
            evolve(now, event)
        assert (raised.value.kind, raised.value.subject) == ("open gate", str(gate(2)))


def test_a_late_outcome_names_the_open_gate_of_its_call() -> None:
    call: dict[str, Any] = {"frame": "0", "call": "c1.0"}
    unknown = OutcomeUnknown(attempt=1, error="cut", **call)
    asked = GateOpened(gate=gate(1), kind=GateKind.IN_DOUBT, terms=TERMS, **call)
    late = OutcomeArrived(attempt=1, gate=gate(1), outcome="returned", at=AT, result=1, **call)
    assert evolve(under_way(unknown, asked), late).pending == ()
    for now, named in ((under_way(unknown, asked), gate(2)), (under_way(unknown), gate(1))):
        with pytest.raises(UnknownSubject) as raised:
            evolve(now, replace(late, gate=named))
        assert (raised.value.kind, raised.value.subject) == ("open gate", str(named))


@pytest.mark.parametrize("event", [opened(GateKind.HOLD, 2), decided(Verdict.CONTINUE), closed()])
def test_a_frame_that_is_over_takes_none(event: Event) -> None:
    now = under_way(opened(GateKind.LIMIT))
    over = now.with_frame(replace(now.frame("0"), state=FrameState.CLOSED))
    with pytest.raises(IllegalTransition) as raised:
        evolve(over, event)
    assert raised.value.machine == "FrameState"
