"""The reducer: the events it takes, and the wrong events of a worker, a journal or a foreign file that it rejects."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from runtime.core.run import events
from runtime.core.run.continuation import (
    Call,
    Continuation,
    FrameState,
    Pace,
    Phase,
    Undelivered,
    list_steering_people,
)
from runtime.core.run.events import Event
from runtime.core.run.forks import fork_document
from runtime.core.run.frames import list_undelivered
from runtime.core.run.gates import is_blocked_by_gate
from runtime.core.run.planning import CallModel, EndRun, plan
from runtime.core.run.reducer import evolve, fold, make_initial_state
from runtime.core.values.enums import CallPreview, CallState, EffectClass, GateKind, Verdict
from runtime.core.values.errors import IllegalTransition, UnknownSubject
from runtime.core.values.verdicts import FRAME_GATES
from tests.core.run.events import (
    AT,
    STARTED,
    TERMS,
    after,
    begun,
    frame_of,
    opened,
    options,
    replied,
)

CALL: dict[str, Any] = {"frame": "0", "call": "c1.0"}
ADMITTED = (replied("b", "b"), events.CallAdmitted(terms=options(delegate="b"), **CALL))
CHILD = opened("0.c1.0", agent="b")
AGAIN = events.RetryScheduled(attempt=1, cause="error", error="busy", **CALL)
UNKNOWN = events.OutcomeUnknown(attempt=1, error="cut", **CALL)
RETURNED = events.ToolReturned(attempt=1, result=1, **CALL)
HALT: dict[str, Any] = {"frame": "0", "call": ""}
GATE, ANOTHER = UUID(int=1), UUID(int=2)
OVER = events.GateClosed(gate=GATE, reason="over", **HALT)
HELLO = events.MessageReceived(by="ada", text="hello")
THERE = events.MessageReceived(by="bea", text="there")


def refused(now: Continuation, event: Event) -> tuple[str, str]:
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, event)
    return raised.value.machine, raised.value.state


def test_an_illegal_transition_names_state_event_and_subject() -> None:
    with pytest.raises(IllegalTransition) as raised:
        evolve(after(*STARTED[2:]), events.CallAdmitted(terms=TERMS, **CALL))
    found = raised.value
    assert (found.machine, found.state) == ("CallState", CallState.STARTED)
    assert (found.trigger, found.subject) == ("CallAdmitted", "0/c1.0")
    with pytest.raises(IllegalTransition) as raised:
        evolve(after(*STARTED[2:]), opened("0.c1.0"))
    assert (raised.value.trigger, raised.value.subject) == ("FrameOpened", "0/c1.0")


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
def test_a_frame_opens_once_and_for_an_admitted_call(event: Event, subject: str) -> None:
    now = after(*ADMITTED)
    with pytest.raises(UnknownSubject, match=f"there is no {subject}$"):
        evolve(now, event)
    refused(now, opened("0.c1.1"))
    now = evolve(now, CHILD)
    assert now.call("0", "c1.0").frame == "0.c1.0"
    assert refused(now, CHILD) == ("Frame", "open")


@pytest.mark.parametrize("before", [[], [begun(), events.Cancelling(by="ada", reason="enough")]])
def test_no_frame_opens_unless_its_run_goes_on(before: list[Event]) -> None:
    assert refused(fold(make_initial_state(UUID(int=1)), before), opened()) == ("Frame", "open")


def test_a_run_that_left_takes_no_event_but_its_import() -> None:
    gone = after(events.Exported(by="eve"))
    assert refused(gone, replied()) == ("Run", Phase.EXPORTED)
    assert refused(gone, opened("0.c1.0")) == ("Run", Phase.EXPORTED)


def test_only_what_has_ended_is_closed() -> None:
    assert refused(after(), events.Completed(output=1)) == ("FrameState", FrameState.ASKING)
    asking = after(*ADMITTED, CHILD)
    end = events.FrameClosed(frame="0.c1.0", outcome="answered", content="done")
    assert refused(asking, end) == ("FrameState", FrameState.ASKING)
    answered = evolve(asking, replied(frame="0.c1.0"))
    assert refused(answered, replace(end, outcome="failed")) == ("FrameState", FrameState.ANSWERED)
    assert evolve(answered, end).call("0", "c1.0").state is CallState.RETURNED


def test_a_run_is_paused_once_and_a_paused_one_resumed() -> None:
    paused, resumed = events.Paused(by="ada", reason=""), events.Resumed(by="ada")
    assert refused(after(), resumed) == ("Pace", Pace.RUNNING)
    assert refused(after(paused), paused) == ("Pace", Pace.PAUSED)


def test_a_delay_by_a_rate_limit_is_no_attempt() -> None:
    late = replace(AGAIN, call=None, until=AT)
    over = events.WaitEnded(frame="0", call=None)
    assert after(late, over).frame("0").attempt == 2
    assert after(replace(late, cause="brake", ticket=7), over).frame("0").attempt == 1


def test_an_answer_is_released_alone_and_after_every_message() -> None:
    begin = (
        events.CallAdmitted(terms=options(answers=True), **CALL),
        events.ToolStarted(attempt=1, at=AT, **CALL),
    )
    no = events.CallRefused(frame="0", call="c1.1", reason="no")
    for turn, state in (
        ((replied("give"), *begin, RETURNED), FrameState.ANSWERED),
        ((replied("give"), *begin, HELLO, RETURNED), FrameState.ASKING),
        ((replied("give", "t"), *begin, no, RETURNED), FrameState.ASKING),
        (
            (replied("give"), *begin, events.ToolFailed(attempt=1, error="", **CALL)),
            FrameState.ASKING,
        ),
    ):
        assert after(*turn).frame("0").state is state


def test_each_attempt_is_previewed_anew() -> None:
    previewed = events.CallPreviewed(preview=CallPreview(), **CALL)
    now = after(*STARTED[2:4], previewed)
    assert now.call("0", "c1.0").preview == CallPreview()
    assert evolve(now, STARTED[4]).call("0", "c1.0").preview is None


def test_a_cancelled_run_ends_after_its_calls() -> None:
    now = after(*STARTED[2:], events.Cancelling(by="ada", reason="enough"))
    assert (plan(now), plan(evolve(now, RETURNED))) == ((), (EndRun(),))


@pytest.mark.parametrize("half", [{}, {"parent": "0"}, {"call": "c1.0"}])
def test_a_root_frame_does_not_close_as_a_call(half: dict[str, Any]) -> None:
    now = after(replied())
    now = now.with_frame(replace(now.frame("0"), **half))
    end = events.FrameClosed(frame="0", outcome="answered", content="done")
    assert refused(now, end) == ("Frame", "root")


@pytest.mark.parametrize(
    "late", [RETURNED, events.ToolFailed(attempt=1, error="no", **CALL), UNKNOWN, AGAIN]
)
def test_an_outcome_of_another_attempt_is_refused(late: Any) -> None:
    begin = events.ToolStarted(attempt=2, at=AT, **CALL)
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
    arrived = events.OutcomeArrived(attempt=1, gate=None, outcome="returned", at=AT, **CALL)
    doubted = evolve(now, replace(UNKNOWN, attempt=2))
    assert refused(doubted, arrived) == ("Attempt", "at attempt 2")


def changed(before: str, *writes: str) -> events.AgentChanged:
    return events.AgentChanged(
        frame="0", before=before, fingerprint="f2", prompt="p2", changes=(), writes=writes
    )


def test_a_frame_goes_on_under_the_version_that_follows_its_own() -> None:
    now = after()
    found = evolve(now, changed("f"))
    assert (found.frame("0").fingerprint, found.frame("0").prompt) == ("f2", "p2")
    assert found.agents == {"a": "f2"}
    assert refused(now, changed("f1")) == ("Frame", "of version f")


def test_only_calls_that_may_still_run_become_writes() -> None:
    calls = ("c1.0", "c1.1", "c1.2")
    now = after(
        replied("t", "t", "u", "t"),
        *(events.CallAdmitted(frame="0", call=call, terms=options()) for call in calls),
        events.ToolStarted(attempt=1, at=AT, **CALL),
        RETURNED,
        changed("f", "t"),
    )
    effects = [call.terms and call.terms.effect for call in now.frame("0").calls]
    assert effects == [EffectClass.READ, EffectClass.WRITE, EffectClass.READ, None]


def test_the_model_is_told_where_a_blob_is_and_who_reported_a_result() -> None:
    stored = events.BlobRef(digest="sha256:x", size=70_000, preview="x")
    now = after(*STARTED[2:], events.ToolReturned(attempt=1, result=None, stored=stored, **CALL))
    told = {"call": "c1.0", "tool": "t", "outcome": "returned", "content": None}
    assert now.frame("0").messages[-1] == {
        "role": "results",
        "results": [told | {"stored": {"digest": "sha256:x", "size": 70_000}}],
    }
    gate: dict[str, Any] = {"gate": UUID(int=7), **CALL}
    now = after(
        *STARTED[2:],
        UNKNOWN,
        events.GateOpened(kind=GateKind.IN_DOUBT, terms=TERMS, **gate),
        events.GateDecided(verdict=Verdict.HAPPENED, by="bea", reason="", result={"id": 1}, **gate),
    )
    reported = told | {"content": {"id": 1}, "reported_by": "bea"}
    assert now.frame("0").messages[-1]["results"] == [reported]


def tried_again(*calls: Call, state: FrameState = FrameState.ACTING) -> Continuation:
    frame = frame_of(state=state, turn=1, calls=calls, outcome="no")
    failed = Continuation(
        run=UUID(int=1), phase=Phase.FAILED, left={"0": frame}, refusals=5, outcome="no"
    )
    return evolve(failed, events.Retried(by="ada", reason="mended"))


@pytest.mark.parametrize(
    ("attempt", "failures", "state"),
    [
        (0, 0, CallState.PROPOSED),
        (1, 1, CallState.PROPOSED),
        (1, 0, CallState.UNKNOWN),
        (3, 2, CallState.UNKNOWN),
    ],
)
def test_a_closed_call_is_checked_or_doubted(attempt: int, failures: int, state: CallState) -> None:
    call = Call(id="c1.0", tool="t", args={}, state=CallState.CLOSED, gate=UUID(int=2))
    call = replace(call, attempt=attempt, failures=failures)
    done = replace(call, id="c1.1", state=CallState.RETURNED, result="r")
    now = tried_again(call, done)
    assert now.call("0", "c1.0") == replace(call, state=state, gate=None)
    assert now.call("0", "c1.1") == done


def test_a_frame_whose_model_failed_asks_it_again() -> None:
    now = tried_again(state=FrameState.FAILED)
    frame = now.frame("0")
    assert (frame.state, frame.attempt, frame.outcome) == (FrameState.ASKING, 2, None)
    assert (now.phase, now.refusals, now.outcome) == (Phase.STARTED, 0, None)
    assert now.origin == ("ada",)


def halted(kind: GateKind, gate: UUID = GATE) -> events.GateOpened:
    return events.GateOpened(gate=gate, kind=kind, terms=None, at=AT, **HALT)


def decided(verdict: Verdict) -> events.GateDecided:
    return events.GateDecided(gate=GATE, verdict=verdict, by="bea", reason="", **HALT)


def running(*happened: Event) -> Continuation:
    return after(*STARTED[2:], *happened)


@pytest.mark.parametrize("kind", sorted(FRAME_GATES))
def test_a_frame_is_halted_until_a_reviewer_decides(kind: GateKind) -> None:
    now = running(halted(kind))
    is_hold = kind is GateKind.HOLD
    assert is_blocked_by_gate(now, "0")
    assert is_blocked_by_gate(now, "0.c1.0") is (kind is GateKind.LIMIT)
    assert [(one.gate, one.kind) for one in now.pending] == [(GATE, kind)]
    assert (now.frame("0").cleared_at, now.frame("0").cleared) == (AT if is_hold else None, -1)
    for end in (decided(Verdict.CONTINUE), decided(Verdict.STOP), OVER):
        over = evolve(now, end)
        assert over.pending == ()
        assert not is_blocked_by_gate(over, "0")
        clears = is_hold and end == decided(Verdict.CONTINUE)
        assert over.frame("0").cleared == (1 if clears else -1)


@pytest.mark.parametrize("kind", sorted(FRAME_GATES))
def test_a_frame_is_halted_for_one_reason_of_a_kind_at_a_time(kind: GateKind) -> None:
    now = running(halted(kind))
    assert refused(now, halted(kind, ANOTHER)) == ("Gate", f"{kind} is open")
    (other, another) = sorted(FRAME_GATES - {kind})
    assert refused(now, halted(other)) == ("Gate", "open")
    assert len(evolve(now, halted(another, ANOTHER)).pending) == 2
    refused(now, decided(Verdict.APPROVE))
    assert refused(now, halted(GateKind.APPROVAL)) == ("Gate", "without a call")


def test_only_an_open_gate_is_decided_closed_or_settled() -> None:
    asked = events.GateOpened(gate=GATE, kind=GateKind.IN_DOUBT, terms=TERMS, **CALL)
    late = events.OutcomeArrived(attempt=1, gate=GATE, outcome="returned", at=AT, result=1, **CALL)
    assert evolve(running(UNKNOWN, asked), late).pending == ()
    held = running(halted(GateKind.HOLD))
    for now, event in (
        (held, replace(decided(Verdict.CONTINUE), gate=ANOTHER)),
        (held, replace(OVER, gate=ANOTHER)),
        (running(UNKNOWN, asked), replace(late, gate=ANOTHER)),
        (running(UNKNOWN), late),
    ):
        with pytest.raises(UnknownSubject) as raised:
            evolve(now, event)
        named = (raised.value.kind, raised.value.subject)
        assert named == ("open gate", str(getattr(event, "gate", None)))


def test_only_an_open_question_gets_an_answer() -> None:
    answer = events.QuestionAnswered(question=ANOTHER, text="so", usage={}, **CALL)
    with pytest.raises(UnknownSubject, match=f"there is no open question {ANOTHER}$"):
        evolve(running(), answer)


def test_an_answer_that_was_given_without_it_is_not_the_last_one() -> None:
    now = fold(make_initial_state(UUID(int=7)), (begun(), HELLO, opened()))
    assert list_undelivered(now, "0") == ({"role": "message", "by": "ada", "content": "hello"},)
    now = fold(now, [THERE, replied(heard=1)])
    assert (now.frames["0"].state, now.frames["0"].outcome) == (FrameState.ASKING, None)
    assert now.unheard == (Undelivered(by="bea", text="there"),)
    assert plan(now) == (CallModel(frame="0"),)
    now = fold(now, [replied(heard=1)])
    roles = [message["role"] for message in now.frames["0"].messages]
    assert roles == ["input", "message", "model", "message", "model"]
    assert plan(now) == (EndRun(),)


def test_only_the_root_hears_and_no_more_than_was_said() -> None:
    now = after(*ADMITTED, CHILD, HELLO)
    assert list_undelivered(now, "0.c1.0") == ()
    for event in (replied(frame="0.c1.0", heard=1), replied(heard=-1), replied(heard=2)):
        with pytest.raises(IllegalTransition, match="unheard"):
            fold(after(HELLO) if event.frame == "0" else now, [event])
    assert fold(now, [replied(frame="0.c1.0")]).frames["0.c1.0"].state is FrameState.ANSWERED


def test_an_event_adds_its_sender() -> None:
    now = after(
        replied("wait_for"),
        events.CallAdmitted(terms=options(), **CALL),
        events.WaitStarted(until=AT, event="paid", **CALL),
        events.WaitEnded(outcome="arrived", result={}, by="bea", **CALL),
    )
    assert now.origin == ("ada", "bea")


def test_a_reviewer_who_wrote_is_kept_apart_from_the_origin() -> None:
    now = after(replace(THERE, reviewer=True))
    assert (now.origin, now.reviewers, list_steering_people(now)) == (
        ("ada",),
        ("bea",),
        ("ada", "bea"),
    )
    fork = events.Forked(of=now.run, position=4, by="eve", state=fork_document(now))
    copy = fold(make_initial_state(UUID(int=2)), [begun(requester="eve"), fork])
    assert (copy.origin, copy.reviewers) == (("ada", "bea", "eve"), ())


def test_a_fork_has_the_origin_of_its_original() -> None:
    state = fork_document(after(THERE, THERE))
    for origin, people in ((state["origin"], ("ada", "bea", "eve")), ([], ("ada", "eve"))):
        event = events.Forked(
            of=UUID(int=2), position=4, by="eve", state={**state, "origin": origin}
        )
        now = fold(make_initial_state(UUID(int=2)), [begun(requester="eve"), event])
        assert now.origin == people


def test_an_import_comes_from_both_sides() -> None:
    taken = events.Imported(by="ivy", manifest="", key="", signature="")
    assert after(events.Exported(by="eve"), taken).origin == ("ada", "ivy")
