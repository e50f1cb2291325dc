"""Entries that can be forked, and the state that a fork inherits."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.commands import CheckCall, OpenInDoubt
from runtime.core.continuation import Call, CallState, Continuation, Phase
from runtime.core.enums import EffectClass, GateKind, Verdict
from runtime.core.errors import IllegalTransition, Unreadable
from runtime.core.events import (
    CallAdmitted,
    Cancelling,
    Completed,
    Event,
    Exported,
    Forked,
    GateDecided,
    GateOpened,
    Imported,
    OutcomeUnknown,
    Proposal,
    RetryScheduled,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine.forks import forked, quiescent, without_permissions
from runtime.core.machine.planning import plan
from runtime.core.machine.reducer import evolve
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import begun, opened, options, replied
from tests.core.machine.walks import AT

GATE = UUID(int=7)
CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}


def asked(kind: GateKind = GateKind.APPROVAL, effect: EffectClass = EffectClass.WRITE) -> Event:
    return GateOpened(gate=GATE, kind=kind, terms=options(effect), **CALL)


def decided(verdict: Verdict) -> Event:
    return GateDecided(gate=GATE, verdict=verdict, by="bea", reason="", **CALL)


def admitted(effect: EffectClass = EffectClass.WRITE) -> Event:
    return CallAdmitted(terms=options(effect), **CALL)


def started(attempt: int = 1) -> Event:
    return ToolStarted(attempt=attempt, at=AT, **CALL)


def again(attempt: int = 1) -> Event:
    return RetryScheduled(attempt=attempt, cause="error", error="busy", **CALL)


UNKNOWN = OutcomeUnknown(attempt=1, error="cut", **CALL)
RETURNED = ToolReturned(attempt=1, result={"id": 1}, **CALL)


def after(*events: Event) -> Continuation:
    """A run whose agent asked for two calls; `events` happen to the first."""
    calls = (Proposal(tool="t", args={"x": 1}), Proposal(tool="u", args={}))
    reply = replied(calls=calls, text="", usage={"output_tokens": 3})
    return fold(initial(uuid4()), [begun(business_key="k"), opened(), reply, *events])


def first(now: Continuation) -> Call:
    return now.call("0", "c1.0")


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ((), True),
        ((admitted(),), True),
        ((asked(),), True),
        ((asked(), decided(Verdict.APPROVE)), True),
        ((admitted(), started()), False),
        ((admitted(EffectClass.READ), started()), False),
        ((admitted(), started(), RETURNED), True),
        ((admitted(), started(), UNKNOWN), True),
        ((admitted(), started(), again()), True),
        ((admitted(EffectClass.TRANSACTIONAL), started(), again()), True),
        ((admitted(EffectClass.IDEMPOTENT), started(), again()), False),
        (
            (
                admitted(EffectClass.IDEMPOTENT),
                started(),
                again(),
                asked(effect=EffectClass.IDEMPOTENT),
            ),
            False,
        ),
        ((Cancelling(by="ada", reason="enough"),), False),
        ((Exported(by="eve"),), False),
    ],
)
def test_where_a_fork_may_go_on_from(events: tuple[Event, ...], expected: bool) -> None:
    assert quiescent(after(*events)) is expected


def test_nothing_goes_on_from_before_the_start_or_after_the_end() -> None:
    assert not quiescent(initial(uuid4()))
    assert not quiescent(replace(after(), phase=Phase.COMPLETED))


@pytest.mark.parametrize(
    "events",
    [
        (admitted(),),
        (asked(),),
        (asked(), decided(Verdict.APPROVE)),
        (admitted(), started(), again()),
        (asked(), decided(Verdict.APPROVE), started(), again(), asked()),
    ],
    ids=["admitted", "gated", "approved", "retrying", "asked again"],
)
def test_a_permission_is_not_inherited(events: tuple[Event, ...]) -> None:
    now = without_permissions(after(*events))
    assert now.pending == ()
    if first(now).state is CallState.UNKNOWN:  # it was started, and brought back by people
        assert events[-1] == asked()
        assert plan(now)[0] == OpenInDoubt(**CALL)
        return
    assert first(now) == Call(id="c1.0", tool="t", args={"x": 1})
    assert plan(now)[0] == CheckCall(**CALL)


@pytest.mark.parametrize(
    "events",
    [(), (asked(GateKind.IN_DOUBT),), (asked(GateKind.IN_DOUBT), decided(Verdict.RUN_AGAIN))],
    ids=["unasked", "asked", "to run again"],
)
def test_a_call_in_doubt_is_asked_about_again(events: tuple[Event, ...]) -> None:
    now = without_permissions(after(admitted(), started(), UNKNOWN, *events))
    assert (first(now).state, first(now).gate, first(now).started_at) == (
        CallState.UNKNOWN,
        None,
        AT,
    )
    assert plan(now)[0] == OpenInDoubt(**CALL)


def test_recorded_admissions_and_results_are_not_planned_again() -> None:
    now = after(admitted(), started(), RETURNED)
    assert first(without_permissions(now)) == first(now)
    assert without_permissions(now).usage == {"output_tokens": 3}
    assert [
        effect for effect in plan(without_permissions(now)) if effect == CheckCall(**CALL)
    ] == []


def test_a_fork_is_the_state_with_its_own_id_and_requester() -> None:
    original = after(asked())
    fork = initial(uuid4())
    event = Forked(of=original.run, position=4, by="eve", state=forked(original))
    assert event.state["schema"] == original.schema  # the others with a default are left out
    now = fold(fork, [begun(requester="eve"), event])
    assert (now.run, now.requester, now.position) == (fork.run, "eve", 0)
    assert now == replace(
        without_permissions(original),
        run=fork.run,
        requester="eve",
        business_key=None,
        origin=("ada", "eve"),
        position=0,
        head=fork.head,
    )


def test_a_run_that_is_under_way_does_not_become_a_fork() -> None:
    event = Forked(of=uuid4(), position=4, by="eve", state=forked(after()))
    with pytest.raises(IllegalTransition):
        evolve(after(), event)
    with pytest.raises(Unreadable):
        fold(
            initial(uuid4()),
            [begun(requester="eve"), replace(event, state={"schema": 1})],
        )


def test_an_imported_run_continues_without_its_approvals() -> None:
    left = evolve(after(asked()), Exported(by="eve"))
    assert (left.phase, left.pending, plan(left)) == (Phase.EXPORTED, (), ())
    assert first(left).state is CallState.GATED
    arrived = evolve(left, Imported(by="ivy", manifest="{}", key="k", signature="00"))
    assert (arrived.phase, arrived.requester) == (Phase.STARTED, "ivy")
    assert first(arrived) == Call(id="c1.0", tool="t", args={"x": 1})
    with pytest.raises(IllegalTransition):
        evolve(left, Completed(output="done"))
