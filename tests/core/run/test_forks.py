"""Entries that can be forked, and the state that a fork inherits."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.documents import codec, continuations
from runtime.core.run import events
from runtime.core.run.continuation import Call, Continuation, Edited, GivenReply, Phase
from runtime.core.run.events import Event, ForkChange, Proposal
from runtime.core.run.forks import (
    change_value,
    fork_document,
    is_quiescent,
    list_changeable,
    without_permissions,
)
from runtime.core.run.frames import make_call_result
from runtime.core.run.planning import CallModel, CheckCall, OpenInDoubt, plan
from runtime.core.run.reducer import Entry, evolve, fold, make_initial_state
from runtime.core.values.enums import CallState, Edit, EffectClass, GateKind, Verdict
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
    return fold(make_initial_state(uuid4()), [begun(business_key="k"), opened(), reply, *happened])


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
    fork = make_initial_state(uuid4())
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


# Changed values


FIRST: dict[str, Any] = {"frame": "0", "call": "c1.0"}
SECOND: dict[str, Any] = {"frame": "0", "call": "c1.1"}
ARGUMENTS, RESULT = (ForkChange(kind="arguments", **SECOND), ForkChange(kind="result", **FIRST))


def made(call: dict[str, Any], *, failed: bool = False, **terms: Any) -> list[Event]:
    ended: Event = events.ToolReturned(attempt=1, result={"id": 1}, **call)
    if failed:
        ended = events.ToolFailed(attempt=1, error="no such id", **call)
    return [
        events.CallAdmitted(terms=options(**terms), **call),
        events.ToolStarted(attempt=1, at=AT, **call),
        ended,
    ]


def gated(call: dict[str, Any]) -> Event:
    terms = options(EffectClass.WRITE)
    return events.GateOpened(gate=UUID(int=7), kind=GateKind.APPROVAL, terms=terms, **call)


def forked(*happened: Event) -> Continuation:
    """The first state of a fork of a run whose agent asked for two calls."""
    now = fold(make_initial_state(UUID(int=1)), [begun(), opened(), replied("t", "u"), *happened])
    assert is_quiescent(now)
    return without_permissions(now)


REPLY = ForkChange(kind="reply", frame="0")
GIVEN = GivenReply(by="eve", text="so", calls=(Proposal(tool="v", args={"n": 1}),))
SAID = events.MessageReceived(by="ada", text="use level 3")


@pytest.mark.parametrize(
    ("happened", "may_change"),
    [
        ((), [("arguments", {}), ("arguments", {})]),
        ((*made(FIRST), gated(SECOND)), [("result", {"id": 1}), ("arguments", {})]),
        ((*made(FIRST, failed=True), gated(SECOND)), [("result", "no such id"), ("arguments", {})]),
        ((*made(FIRST), *made(SECOND)), [("reply", None), *[("result", {"id": 1})] * 2]),
        ((*made(FIRST, plan=True), gated(SECOND)), [("arguments", {})]),
        ((*made(FIRST), *made(SECOND), replied("v")), [("arguments", {})]),
        ((SAID, gated(SECOND)), [("message", "use level 3"), *[("arguments", {})] * 2]),
        (
            (*made(FIRST), events.CallRefused(reason="no", **SECOND)),
            [("reply", None), ("result", {"id": 1})],
        ),
    ],
)
def test_what_may_be_changed(happened: tuple[Event, ...], may_change: list[Any]) -> None:
    found = list(list_changeable(forked(*happened)))
    assert [(change.kind, value) for change, value in found] == may_change


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("failed", [False, True])
def test_a_changed_result_is_a_person_s_and_the_call_is_not_made_again(
    ended: bool, failed: bool
) -> None:
    rest = made(SECOND) if ended else [gated(SECOND)]
    now = change_value(forked(*made(FIRST, failed=failed), *rest), RESULT, [2], "eve")
    call = now.call("0", "c1.0")
    assert (call.state, call.result, call.changed_by) == (CallState.RETURNED, [2], "eve")
    if not ended:
        assert plan(now) == (CheckCall(**SECOND),)
        now = fold(now, made(SECOND))
    assert plan(now) == (CallModel(frame="0"),)
    first, second = now.frame("0").messages[-1]["results"]
    assert (first["content"], first["changed_by"]) == ([2], "eve")
    assert (second["content"], "changed_by" in second) == ({"id": 1}, False)


def test_changed_arguments_stay_in_forks_of_the_fork() -> None:
    now = change_value(forked(*made(FIRST), gated(SECOND)), ARGUMENTS, {"to": "bo"}, "eve")
    edited = Edited(by="eve", proposed={}, in_fork=True)
    for later in (now, without_permissions(now), without_permissions(fold(now, [gated(SECOND)]))):
        call = later.call("0", "c1.1")
        assert (call.state, call.args, call.edited) == (CallState.PROPOSED, {"to": "bo"}, edited)
        assert plan(later) == (CheckCall(**SECOND),)


def test_a_run_tried_again_asks_about_the_arguments_of_the_fork_not_of_the_model() -> None:
    now = change_value(forked(*made(FIRST), gated(SECOND)), ARGUMENTS, {"to": "bo"}, "eve")
    for args in ({"to": "cy"}, {"to": "di"}):
        edit = Edit(args=args, digest="sha256:e")
        said = events.GateDecided(
            gate=UUID(int=7), verdict=Verdict.EDIT, by="bea", reason="", edit=edit, **SECOND
        )
        now = fold(now, [gated(SECOND), said])
        call = now.call("0", "c1.1")
        assert (call.args, call.edited and call.edited.by, call.proposed) == (args, "bea", {})
    assert continuations.decode_continuation(continuations.encode_continuation(now)) == now
    frame = now.frame("0").with_call(replace(now.call("0", "c1.1"), state=CallState.CLOSED))
    failed = replace(now, phase=Phase.FAILED, frames={}, left={"0": frame})
    again = evolve(failed, events.Retried(by="admin", reason=""))
    for later in (again, without_permissions(now)):
        call = later.call("0", "c1.1")
        edited = Edited(by="eve", proposed={}, in_fork=True)
        assert (call.state, call.args, call.edited) == (CallState.PROPOSED, {"to": "bo"}, edited)


def test_a_changed_message_is_its_editor_s() -> None:
    now = change_value(
        forked(SAID, gated(SECOND)), ForkChange(kind="message", number=1), "no", "eve"
    )
    assert [(one.by, one.text) for one in now.unheard] == [("eve", "no")]


@pytest.mark.parametrize("waits", [False, True])
def test_a_given_reply_takes_the_place_of_the_next_one_and_its_calls_are_asked(waits: bool) -> None:
    retry = events.RetryScheduled(
        frame="0", call=None, attempt=1, cause="error", error="503", until=AT, since=AT
    )
    before = forked(*made(FIRST), *made(SECOND), *([retry] if waits else []))
    now = change_value(before, REPLY, GIVEN, "eve")
    assert (now.frame("0").given, plan(now)) == (GIVEN, (CallModel(frame="0"),))
    assert without_permissions(now).frame("0").given == GIVEN
    assert continuations.decode_continuation(continuations.encode_continuation(now)) == now
    said = replied("v", text="so", calls=GIVEN.calls, given_by="eve")
    later = fold(now, [said])
    frame, call = later.frame("0"), later.call("0", "c2.0")
    assert (frame.given, frame.messages[-1]["given_by"]) == (None, "eve")
    assert call.edited == Edited(by="eve", proposed={"n": 1}, in_fork=True)
    assert without_permissions(later).call("0", "c2.0").edited == call.edited
    assert "edited_by" not in make_call_result(replace(call, state=CallState.RETURNED))
    assert continuations.decode_continuation(continuations.encode_continuation(later)) == later


@pytest.mark.parametrize("change", [ARGUMENTS, RESULT])
def test_a_changed_fork_is_read_as_it_was_written(change: ForkChange) -> None:
    now = change_value(forked(*made(FIRST), gated(SECOND)), change, {"a": 1}, "eve")
    event = events.Forked(of=now.run, position=4, by="eve", state=fork_document(now))
    for one in (event, replace(event, state=fork_document(forked()), change=change)):
        text = codec.encode_entry(Entry(at=AT, events=(begun(requester="eve"), one)))
        assert codec.decode_entry(text).events[1] == one
    copy = fold(make_initial_state(uuid4()), [begun(requester="eve"), event])
    assert copy.frames == now.frames
