"""Entries that can be forked, and the state that a fork inherits."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.run import events
from runtime.core.run.continuation import Call, Continuation, Phase
from runtime.core.run.events import Event
from runtime.core.run.forks import fork_document, is_quiescent, without_permissions
from runtime.core.run.planning import CheckCall, OpenInDoubt, plan
from runtime.core.run.reducer import evolve, fold, initial
from runtime.core.values.enums import CallState, EffectClass, GateKind, Verdict
from runtime.core.values.errors import IllegalTransition, Unreadable
from tests.core.run.events import AT, begun, opened, options, replied

CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}
KEYED = EffectClass.IDEMPOTENT
PROPOSED, IN_DOUBT = CallState.PROPOSED, CallState.UNKNOWN


def asked(kind: GateKind = GateKind.APPROVAL, effect: EffectClass = EffectClass.WRITE) -> Event:
    return events.GateOpened(gate=UUID(int=7), kind=kind, terms=options(effect), **CALL)


def decided(verdict: Verdict) -> Event:
    return events.GateDecided(gate=UUID(int=7), verdict=verdict, by="bea", reason="", **CALL)


def admitted(effect: EffectClass = EffectClass.WRITE) -> Event:
    return events.CallAdmitted(terms=options(effect), **CALL)


STARTED = events.ToolStarted(attempt=1, at=AT, **CALL)
AGAIN = events.RetryScheduled(attempt=1, cause="error", error="busy", **CALL)
LOST = replace(AGAIN, cause="lost")
UNKNOWN = events.OutcomeUnknown(attempt=1, error="cut", **CALL)
RETURNED = events.ToolReturned(attempt=1, result={"id": 1}, **CALL)


def after(*happened: Event) -> Continuation:
    """A run whose agent asked for two calls; these events are about the first."""
    reply = replied("t", "u", usage={"output_tokens": 3})
    return fold(initial(uuid4()), [begun(business_key="k"), opened(), reply, *happened])


@pytest.mark.parametrize(
    ("happened", "may_fork", "inherited"),
    [
        ((), True, PROPOSED),
        ((admitted(),), True, PROPOSED),
        ((asked(),), True, PROPOSED),
        ((asked(), decided(Verdict.APPROVE)), True, PROPOSED),
        ((admitted(), STARTED), False, CallState.STARTED),
        ((admitted(EffectClass.READ), STARTED), False, CallState.STARTED),
        ((admitted(), STARTED, RETURNED), True, CallState.RETURNED),
        ((admitted(), STARTED, AGAIN), True, PROPOSED),
        ((admitted(), STARTED, LOST), True, IN_DOUBT),
        ((admitted(), STARTED, AGAIN, asked()), True, IN_DOUBT),
        ((admitted(), STARTED, UNKNOWN), True, IN_DOUBT),
        ((admitted(), STARTED, UNKNOWN, asked(GateKind.IN_DOUBT)), True, IN_DOUBT),
        (
            (admitted(), STARTED, UNKNOWN, asked(GateKind.IN_DOUBT), decided(Verdict.RUN_AGAIN)),
            True,
            IN_DOUBT,
        ),
        ((admitted(EffectClass.TRANSACTIONAL), STARTED, AGAIN), True, PROPOSED),
        ((admitted(KEYED), STARTED, AGAIN), False, PROPOSED),
        ((admitted(KEYED), STARTED, AGAIN, asked(effect=KEYED)), False, PROPOSED),
    ],
)
def test_a_fork_inherits_results_and_doubts_and_no_permission(
    happened: tuple[Event, ...], may_fork: bool, inherited: CallState
) -> None:
    before = after(*happened)
    assert is_quiescent(before) is may_fork
    now = without_permissions(before)
    call = now.call("0", "c1.0")
    assert (call.state, now.pending, now.usage) == (inherited, (), {"output_tokens": 3})
    if inherited is PROPOSED:
        assert call == Call(id="c1.0", tool="t", args={})
        assert plan(now)[0] == CheckCall(**CALL)
    elif inherited is IN_DOUBT:
        assert (call.gate, call.started_at) == (None, AT)
        assert plan(now)[0] == OpenInDoubt(**CALL)
    else:
        assert call == before.call("0", "c1.0")


def test_a_fork_is_the_state_with_its_own_id_and_requester() -> None:
    original = after(events.MessageReceived(by="ada", text="hello"), asked())
    fork = initial(uuid4())
    event = events.Forked(of=original.run, position=4, by="eve", state=fork_document(original))
    assert fold(fork, [begun(requester="eve"), event]) == replace(
        without_permissions(original),
        run=fork.run,
        requester="eve",
        business_key=None,
        origin=("ada", "eve"),
        position=0,
        head=fork.head,
    )
    with pytest.raises(IllegalTransition):
        evolve(after(), event)
    with pytest.raises(Unreadable):
        fold(fork, [begun(requester="eve"), replace(event, state={"schema": 1})])


def test_an_imported_run_continues_without_its_approvals() -> None:
    left = evolve(after(asked()), events.Exported(by="eve"))
    assert (left.phase, left.pending, plan(left)) == (Phase.EXPORTED, (), ())
    assert left.call("0", "c1.0").state is CallState.GATED
    arrived = evolve(left, events.Imported(by="ivy", manifest="{}", key="k", signature="00"))
    assert (arrived.phase, arrived.requester) == (Phase.STARTED, "ivy")
    assert arrived.call("0", "c1.0") == Call(id="c1.0", tool="t", args={})
    with pytest.raises(IllegalTransition):
        evolve(left, events.Completed(output="done"))
