"""What a person denied in a run is not asked again in it, and denials of one tool in three turns end it."""

from typing import Any
from unittest.mock import patch

from agents.sdk import tool
from agents.sdk.scripts import script
from agents.testing import Flow, Turn, call, drive, say, together
from runtime.core.documents.codec import decode_entry, encode_entry
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import CallRefused, Forked, GateOpened, Retried
from runtime.core.run.forks import fork_document, read_fork
from runtime.core.run.planning import CancelRun, plan
from runtime.core.run.reducer import Entry, evolve
from runtime.core.values.enums import Decision, Verdict
from runtime.ports.approvals import ApprovalVoid
from tests.support.specs import spec_of

AGAIN = "a person denied this call before in this run, and it is not asked again"


@tool(approval=True, sentence="Pay {euros} euros back")
def refund(euros: int) -> int:
    """Pays back."""
    raise AssertionError("nothing here is approved")


@tool(approval=True, sentence="Write to {name}")
def post(name: str) -> str:
    """Sends a letter."""
    raise AssertionError("nothing here is approved")


desk = spec_of("desk", tools=[refund, post])


def pay(euros: int) -> Any:
    return call("refund", euros=euros)


def at_desk(*model: Any) -> Flow:
    return drive(desk, {"name": "A-1"}, model=model)


def asked(flow: Flow) -> int:
    return sum(isinstance(event, GateOpened) for event in flow.events)


def state(flow: Flow) -> Continuation:
    return flow._worker.now


def test_the_same_call_again_is_refused_with_the_reason_and_another_is_asked() -> None:
    def third(turn: Turn) -> Any:
        heard = turn.result("refund")
        assert heard is not None
        assert f"{AGAIN}. The reason given: too much" in str(heard.content)
        return pay(30)

    flow = at_desk(pay(40), pay(40), third).deny("too much")
    assert (asked(flow), flow.gate.args) == (2, {"euros": 30})
    assert [event.call for event in flow.events if isinstance(event, CallRefused)] == ["c2.0"]


def test_a_sub_agent_that_is_called_again_does_not_ask_again() -> None:
    """The denied frame has left the continuation by then."""
    boss = spec_of("boss", subagents=[desk])
    flow = drive(
        boss,
        {"name": "A-1"},
        models={
            "boss": [call("desk", name="A-1"), call("desk", name="B-2"), say("Done.")],
            "desk": script(lambda turn: say("No.") if turn.results else pay(40)),
        },
    )
    assert flow.deny("too much").output == "Done."
    assert asked(flow) == 1


def test_an_approval_that_is_void_asks_no_person_what_another_denied() -> None:
    boss = spec_of("boss", subagents=[desk])
    both = together(call("desk", name="A-1"), call("desk", name="B-2"))
    models: dict[str, Any] = {
        "boss": [both, say("Done.")],
        "desk": script(lambda turn: say("No.") if turn.results else pay(40)),
    }
    flow = drive(boss, {"name": "A-1"}, models=models)
    first, second = (gate.gate for gate in flow.gates)
    flow._worker.decide(first, Decision(verdict=Verdict.DENY, by="bea", reason="too much"))
    void = ApprovalVoid("its reviewer has left")
    with patch.object(flow._worker._approvals, "verify_approval", side_effect=void):
        flow._worker.decide(second, Decision(verdict=Verdict.APPROVE, by="cy", reason=""))
    flow._worker.go_on()
    assert (flow.output, asked(flow)) == ("Done.", 2)


def test_an_expired_request_is_asked_again() -> None:
    assert at_desk(pay(40), pay(40)).expire().gate.args == {"euros": 40}


def test_denials_of_one_tool_in_three_turns_end_the_run() -> None:
    flow = at_desk(pay(1), call("post", name="A"), pay(2), call("post", name="B"), pay(3), pay(4))
    for _ in range(4):
        flow.deny("no")
    flow.deny("no, and stop asking")
    assert (flow.status, asked(flow)) == ("failed", 5)
    assert flow.reason == "refund was denied in 3 turns, last because: no, and stop asking"


def test_parallel_denials_count_once() -> None:
    flow = at_desk(together(pay(1), pay(2), pay(3)), say("Done."))
    assert len(flow.gates) == 3
    for gate in flow.gates:
        flow._worker.decide(gate.gate, Decision(verdict=Verdict.DENY, by="bea", reason="no"))
    flow._worker.go_on()
    assert flow.output == "Done."


def test_a_run_that_is_tried_again_keeps_its_denials_and_counts_anew() -> None:
    failed = state(at_desk(pay(1), pay(2), pay(3)).deny("no").deny("no").deny("no"))
    again = evolve(failed, Retried(by="admin", reason="the prompt was wrong"))
    assert again.denials.keys() == failed.denials.keys()
    assert not any(isinstance(command, CancelRun) for command in plan(again))


def test_a_fork_keeps_the_denials() -> None:
    before = state(at_desk(pay(1), pay(2)).deny("no"))
    event = Forked(of=before.run, position=1, by="admin", state=fork_document(before))
    text = encode_entry(Entry(at=at_desk(pay(1)).clock, events=(event,)))
    (read,) = decode_entry(text).events
    assert isinstance(read, Forked)
    assert read_fork(read).denials == before.denials
