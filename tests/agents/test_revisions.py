"""A person may request changes to a call: its agent proposes it again, and people are asked about the revision."""

from typing import Any
from unittest.mock import patch

from agents.sdk import tool
from agents.sdk.scripts import Turn
from agents.testing import Flow, call, drive, say, together
from runtime.core.documents import codec, continuations
from runtime.core.documents.continuations import Conversations
from runtime.core.run.continuation import MAX_DENIALS, Continuation
from runtime.core.run.events import CallRefused, GateDecided, Retried
from runtime.core.run.forks import without_permissions
from runtime.core.run.reducer import evolve
from runtime.core.values.enums import Decision, Verdict
from runtime.core.values.verdicts import CHANGES
from runtime.ports.approvals import ApprovalVoid, Ruling
from tests.support.specs import spec_of


@tool(approval=True, sentence="Pay {euros} euros to {to}")
def pay(to: str, euros: int) -> int:
    """Pays."""
    return euros


@tool(approval=True, sentence="Write to {to}")
def write(to: str) -> str:
    """Writes."""
    return to


desk = spec_of("desk", tools=[pay, write])


def paying(euros: int, to: str = "ada") -> Any:
    return call("pay", to=to, euros=euros)


def at_desk(*model: Any) -> Flow:
    return drive(desk, {"name": "A-1"}, model=model)


def links(flow: Flow) -> list[tuple[Any, Any, int]]:
    """The arguments of each open gate, the arguments of the call that it revises, and its number."""
    shown = flow._worker.snapshots
    return [
        (
            one.args.get("euros"),
            shown[one.revises].args["euros"] if one.revises else None,
            one.revision,
        )
        for one in flow.gates
    ]


def test_the_model_reads_what_to_change_and_the_next_call_is_the_revision() -> None:
    def second(turn: Turn) -> Any:
        heard = turn.result("pay")
        assert heard is not None
        assert (heard.to_change, heard.denied, heard.content) == (True, True, f"{CHANGES}Pay 40.")
        return paying(int(heard.why.split()[1].rstrip(".")))

    flow = at_desk(paying(400), second, paying(30), say("Done.")).request_changes("Pay 40.")
    assert links(flow) == [(40, 400, 2)]
    assert links(flow.request_changes("Pay 30.")) == [(30, 40, 3)]
    assert flow.approve().output == "Done."
    assert [(made.tool, made.args["euros"]) for made in flow.calls] == [("pay", 30)]


def test_only_the_next_call_of_the_tool_in_a_later_turn_is_a_revision() -> None:
    first = together(paying(400), paying(500, "cyril"))
    flow = at_desk(
        first, call("write", to="ada"), together(paying(40), paying(50), paying(60)), say("")
    )
    bigger, smaller = (one.gate for one in flow.gates)
    for gate, said in ((smaller, "Pay 50."), (bigger, "Pay 40.")):
        flow._worker.decide(gate, _changes(said))
    flow._worker.go_on()
    assert links(flow) == [(None, None, 1)]
    flow.approve("write")
    assert links(flow) == [(40, 500, 2), (50, 400, 2), (60, None, 1)]


def test_an_equal_call_is_refused_and_requests_for_changes_end_no_run() -> None:
    model = [paying(400), paying(400), *(paying(n) for n in range(MAX_DENIALS + 1)), say("Done.")]
    flow = at_desk(*model).request_changes("Pay less.")
    assert links(flow) == [(0, 400, 2)]
    assert sum(isinstance(event, CallRefused) for event in flow.events) == 1
    for n in range(MAX_DENIALS):
        flow.request_changes(f"Not {n}.")
    assert (links(flow), flow.deny("no").output) == ([(3, 2, 5)], "Done.")


def test_a_revision_is_asked_even_if_the_policy_would_not_ask() -> None:
    flow = at_desk(paying(400), paying(40), paying(40), say("Done."))
    with patch.object(flow._worker._approvals, "judge", return_value=Ruling(gated=False)):
        assert links(flow.request_changes("Pay 40.")) == [(40, 400, 2)]
        assert flow.approve().output == "Done."  # the call after it is no revision


def test_the_link_outlives_its_process_but_no_fork() -> None:
    flow = at_desk(paying(400), say("Done."))
    flow._worker.decide(flow.gate.gate, _changes("Pay 40."))
    flow._worker.go_on()
    texts = [text for text in flow.journal if '"request_changes"' in text]
    assert [codec.decode_entry(text).events[0] for text in texts] == [
        event for event in flow.events if isinstance(event, GateDecided)
    ]
    flow = at_desk(paying(400), paying(40), say("Done.")).request_changes("Pay 40.")
    now = flow._worker.now
    assert continuations.decode_continuation(continuations.encode_continuation(now)) == now
    assert _briefly(flow, now) == now
    assert copied(flow) == ((), None)
    flow = at_desk(paying(400), call("write", to="ada")).request_changes("Pay 40.")
    assert copied(flow) == ((), None)
    flow = at_desk(paying(400), paying(40)).request_changes("Pay 40.")
    flow._worker.cancel(by="", reason="its models failed")
    flow._worker.go_on()
    again = evolve(flow._worker.now, Retried(by="admin", reason=""))
    [frame] = again.frames.values()
    assert frame.calls[-1].revises is not None


def copied(flow: Flow) -> tuple[Any, Any]:
    """The calls that a fork would still revise, and what its last call revises."""
    [left] = without_permissions(flow._worker.now).frames.values()
    return left.to_revise, left.calls[-1].revises


def test_a_call_of_the_same_turn_that_is_asked_again_is_no_revision() -> None:
    flow = at_desk(together(paying(400), paying(500, "cyril")))
    bigger, other = (one.gate for one in flow.gates)
    flow._worker.decide(bigger, _changes("Pay 40."))
    void = ApprovalVoid("its reviewer has left")
    with patch.object(flow._worker._approvals, "verify_approval", side_effect=void):
        flow._worker.decide(other, Decision(verdict=Verdict.APPROVE, by="cy", reason=""))
    flow._worker.go_on()
    assert links(flow) == [(500, None, 1)]


def _changes(text: str) -> Any:
    return Decision(verdict=Verdict.REQUEST_CHANGES, by="bea", reason=text)


def _briefly(flow: Flow, now: Continuation) -> Continuation:
    """The state, written without its conversations and read again."""
    conversations = Conversations()
    for text in flow.journal:
        conversations.read(text)
    brief = conversations.shorten_continuation(now)
    assert brief is not None
    text = continuations.encode_continuation(brief.state, brief.lengths)
    return continuations.decode_continuation(text, lambda position: flow.journal[position - 1])
