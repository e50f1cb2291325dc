"""The values that a person may change in a fork, and the state after each change."""

from dataclasses import replace
from typing import Any
from uuid import UUID, uuid4

import pytest

from runtime.core.documents import codec, continuations
from runtime.core.run import events
from runtime.core.run.continuation import Continuation, Edited, GivenReply, Phase
from runtime.core.run.events import Event, ForkChange, Proposal
from runtime.core.run.forks import (
    change_value,
    fork_document,
    is_quiescent,
    list_changeable,
    without_permissions,
)
from runtime.core.run.frames import result_of
from runtime.core.run.planning import CallModel, CheckCall, plan
from runtime.core.run.reducer import Entry, evolve, fold, initial
from runtime.core.values.enums import CallState, Edit, EffectClass, GateKind, Verdict
from tests.core.run.events import AT, begun, opened, options, replied

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


def after(*happened: Event) -> Continuation:
    """The first state of a fork of a run whose agent asked for two calls."""
    now = fold(initial(UUID(int=1)), [begun(), opened(), replied("t", "u"), *happened])
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
    found = list(list_changeable(after(*happened)))
    assert [(change.kind, value) for change, value in found] == may_change


@pytest.mark.parametrize("ended", [False, True])
@pytest.mark.parametrize("failed", [False, True])
def test_a_changed_result_is_a_person_s_and_the_call_is_not_made_again(
    ended: bool, failed: bool
) -> None:
    rest = made(SECOND) if ended else [gated(SECOND)]
    now = change_value(after(*made(FIRST, failed=failed), *rest), RESULT, [2], "eve")
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
    now = change_value(after(*made(FIRST), gated(SECOND)), ARGUMENTS, {"to": "bo"}, "eve")
    edited = Edited(by="eve", proposed={}, in_fork=True)
    for later in (now, without_permissions(now), without_permissions(fold(now, [gated(SECOND)]))):
        call = later.call("0", "c1.1")
        assert (call.state, call.args, call.edited) == (CallState.PROPOSED, {"to": "bo"}, edited)
        assert plan(later) == (CheckCall(**SECOND),)


def test_a_run_tried_again_asks_about_the_arguments_of_the_fork_not_of_the_model() -> None:
    now = change_value(after(*made(FIRST), gated(SECOND)), ARGUMENTS, {"to": "bo"}, "eve")
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
        after(SAID, gated(SECOND)), ForkChange(kind="message", number=1), "no", "eve"
    )
    assert [(one.by, one.text) for one in now.unheard] == [("eve", "no")]


@pytest.mark.parametrize("waits", [False, True])
def test_a_given_reply_takes_the_place_of_the_next_one_and_its_calls_are_asked(waits: bool) -> None:
    retry = events.RetryScheduled(
        frame="0", call=None, attempt=1, cause="error", error="503", until=AT, since=AT
    )
    before = after(*made(FIRST), *made(SECOND), *([retry] if waits else []))
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
    assert "edited_by" not in result_of(replace(call, state=CallState.RETURNED))
    assert continuations.decode_continuation(continuations.encode_continuation(later)) == later


@pytest.mark.parametrize("change", [ARGUMENTS, RESULT])
def test_a_changed_fork_is_read_as_it_was_written(change: ForkChange) -> None:
    now = change_value(after(*made(FIRST), gated(SECOND)), change, {"a": 1}, "eve")
    event = events.Forked(of=now.run, position=4, by="eve", state=fork_document(now))
    for one in (event, replace(event, state=fork_document(after()), change=change)):
        text = codec.encode_entry(Entry(at=AT, events=(begun(requester="eve"), one)))
        assert codec.decode_entry(text).events[1] == one
    copy = fold(initial(uuid4()), [begun(requester="eve"), event])
    assert copy.frames == now.frames
