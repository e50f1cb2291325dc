"""The test kit: a run in memory goes the way it goes on the engine."""

import json
import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Group
from pydantic import BaseModel

from agents.registry import Registry
from agents.sdk import NotDone, RetryPolicy, ToolContext, ToolError, tool
from agents.testing import Turn, call, drive, replies, say, together
from agents.testing.drive import Flow
from agents.testing.worker import BEGINNING
from runtime.core.documents.codec import decode_entry, documents_of
from runtime.core.enums import GateKind, Risk, Verdict
from runtime.errors import InvalidInput
from runtime.ports.effects import ToolResult
from tests.agents.conftest import Directory, Sink
from tests.support.engine import Engine, events_of
from tests.support.specs import NEWCOMER, spec_of


class Order(BaseModel):
    number: str


done: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_done() -> None:
    done.clear()


@tool(effect="read")
def price(number: str) -> int:
    """Says what an order cost."""
    done.append("price")
    return 40


@tool(approval=True, risk="high", sentence="Pay {euros} euros back for {number}")
def refund(context: ToolContext, number: str, euros: int) -> dict[str, str]:
    """Pays back."""
    done.append(context.key)
    return {"paid": number}


@tool(effect="idempotent")
def book(context: ToolContext, number: str) -> str:
    """Books."""
    done.append(context.key)
    return "booked"


@tool()
def post(number: str) -> str:
    """Sends a letter."""
    done.append("post")
    return "sent"


@tool(secret_args=["code"])
def unlock(code: str) -> str:
    """Unlocks."""
    done.append(code)
    return f"opened with {code[:1]}"


@tool(effect="transactional")
def employ(name: str) -> str:
    """Writes a person down."""
    Group.objects.create(name=name)
    return name


@tool(retry=RetryPolicy(attempts=3, base=10.0, ceiling=60.0))
def knock(number: str) -> str:
    """Fails twice, and then works."""
    done.append("knock")
    if len(done) < 3:
        raise NotDone("no person there", after=30)
    return "open"


@tool()
def refuse(number: str) -> str:
    """Says no."""
    raise ToolError("we are closed")


desk = spec_of(
    "desk",
    input=Order,
    model=replies(),
    tools=[price, refund, book, post, unlock, employ, knock, refuse],
)
boss = spec_of(
    "boss",
    input=Order,
    model=replies(call("desk", number="A-1"), say("It was done.")),
    subagents=[desk],
)

A1 = {"number": "A-1"}
PAY = call("refund", number="A-1", euros=40)


def test_a_run_stops_at_a_gate_with_the_call_and_continues() -> None:
    flow = drive(desk, A1, model=[call("price", **A1), PAY, say("Paid.")])
    assert flow.status == "suspended"
    assert (flow.gate.tool, flow.gate.args) == ("refund", {"number": "A-1", "euros": 40})
    assert (flow.gate.sentence, flow.gate.risk) == ("Pay 40 euros back for A-1", Risk.HIGH)
    assert flow.gate.path == ("desk", "refund")
    assert done == ["price"]
    flow.approve()
    assert (flow.status, flow.output, flow.gates) == ("completed", "Paid.", ())
    assert [made.tool for made in flow.calls] == ["price", "refund"]
    assert flow.calls[1].outcome == ToolResult(value={"paid": "A-1"})
    assert flow.calls[1].key == done[1] == f"{flow.run}/0/c2.0"


def test_a_denied_call_is_never_made_and_the_model_hears_why() -> None:
    def last(turn: Turn) -> Any:
        paid = turn.result("refund")
        assert paid is not None
        return say(f"Not paid: {paid.why}")

    flow = drive(desk, A1, model=[PAY, last]).deny("too much")
    assert flow.output == "Not paid: too much"
    assert done == []
    with pytest.raises(AssertionError, match="to deny needs a reason"):
        drive(desk, A1, model=[PAY]).deny("")


def test_a_gate_may_expire() -> None:
    flow = drive(desk, A1, model=[PAY, say("Too late.")]).expire()
    assert (flow.output, done) == ("Too late.", [])


def test_two_gates_are_decided_each_for_itself() -> None:
    other = call("refund", number="A-2", euros=1)
    flow = drive(desk, A1, model=[together(PAY, other), say("Done.")])
    assert len(flow.gates) == 2
    with pytest.raises(AssertionError, match="not one gate of any tool; waiting: refund, refund"):
        flow.approve()


def test_a_sub_agent_with_its_own_model_waits_below_its_parent() -> None:
    flow = drive(boss, A1, models={"desk": [PAY, say("Paid.")]})
    assert flow.gate.path == ("boss", "desk", "refund")
    assert flow.approve().output == "It was done."
    assert flow.transcript[0] == 'boss begins with {"number": "A-1"}'
    assert 'desk begins with {"number": "A-1"}' in flow.transcript
    assert str(flow).endswith("completed: It was done.")


@pytest.mark.parametrize("where", ["crash_before", "crash_after"])
def test_a_lost_idempotent_call_is_repeated_with_its_key(where: str) -> None:
    lost: Any = {where: ["book"]}
    flow = drive(desk, A1, model=[call("book", **A1), say("Booked.")], **lost)
    assert flow.output == "Booked."
    assert len(set(done)) == 1
    assert len(done) == (1 if where == "crash_before" else 2)


def test_a_person_resolves_a_write_whose_worker_died() -> None:
    def doubted() -> Flow:
        return drive(desk, A1, model=[call("post", **A1), say("Sent.")], crash_after=["post"])

    flow = doubted()
    assert (flow.gate.kind, done) == (GateKind.IN_DOUBT, ["post"])
    assert flow.settle("happened", result="sent").output == "Sent."
    assert done == ["post"]
    assert doubted().settle("run_again").output == "Sent."
    assert done == ["post"] * 3
    assert doubted().settle(Verdict.GIVE_UP, reason="never mind").output == "Sent."
    with pytest.raises(InvalidInput):
        doubted().settle("happened", result=5)
    with pytest.raises(AssertionError, match="at this gate one can say happened, run_again"):
        doubted().approve()


def test_a_transactional_call_whose_worker_died_leaves_nothing(db: None) -> None:
    flow = drive(desk, A1, model=[call("employ", name="new"), say("Done.")], crash_after=["employ"])
    assert flow.output == "Done."
    assert [made.outcome is None for made in flow.calls] == [True, False]
    assert Group.objects.filter(name="new").count() == 1


def test_without_a_database_a_transactional_call_says_so() -> None:
    with pytest.raises(RuntimeError, match="Database access not allowed"):
        drive(desk, A1, model=[call("employ", name="new")])


def test_waits_between_attempts_pass_at_once() -> None:
    flow = drive(desk, A1, model=[call("knock", **A1), say("In.")])
    assert (flow.output, done) == ("In.", ["knock"] * 3)
    assert flow.clock - BEGINNING == timedelta(seconds=60)


def test_the_kit_refuses_invalid_calls_like_the_engine() -> None:
    flow = drive(desk, A1, model=[call("refund", number="A-1", euros="40"), say("Oh.")])
    assert flow.output == "Oh."
    assert "c1.0 refused: arguments.euros: Input should be a valid integer" in str(flow)
    flow = drive(desk, A1, model=[call(f"tool{number}") for number in range(5)])
    assert flow.status == "failed"
    assert "5 calls that could not be made, among them tool4: there is no tool" in str(flow.reason)


def test_a_script_that_runs_out_fails_the_run() -> None:
    flow = drive(boss, A1, model=[])
    assert flow.status == "failed"
    assert flow.reason == "NoReplyLeft: the test wrote 0 replies, and turn 1 began"
    flow = drive(desk, A1, model=[call("price", **A1)])
    assert flow.reason == "NoReplyLeft"  # the text of a model with secrets is not repeated


def test_input_is_checked_as_at_any_start() -> None:
    with pytest.raises(InvalidInput) as problem:
        drive(desk, {})
    assert problem.value.field == "input.number"


def test_a_cancelled_run_starts_nothing_more() -> None:
    flow = drive(desk, A1, model=[PAY]).cancel("not needed")
    assert (flow.status, flow.reason, flow.gates, done) == ("cancelled", "not needed", (), [])


def test_secrets_are_sealed_in_the_journal_and_open_for_the_tool() -> None:
    flow = drive(desk, A1, model=[call("unlock", code="sesame"), say("In.")])
    assert (flow.output, done) == ("In.", ["sesame"])
    assert "sesame" not in "".join(flow.journal)


def test_a_tool_changed_during_a_wait_needs_a_new_approval() -> None:
    @tool(approval=True, sentence="Pay {euros} euros back for {number}, at most 100")
    def refund(number: str, euros: int, limit: int = 100) -> str:
        """Pays back, within a limit."""
        return "paid"

    flow = drive(desk, A1, model=[PAY, say("Paid.")])
    first = flow.gate
    flow.deploy(spec_of("desk", input=Order, model=replies(), tools=[refund])).approve()
    assert (flow.status, done) == ("suspended", [])
    assert (flow.gate.kind, flow.gate.args["agent"]) == ("version", "desk")
    flow.settle("continue")
    assert (flow.status, done) == ("suspended", [])
    assert flow.gate.action_digest != first.action_digest
    assert flow.gate.sentence.endswith("at most 100")
    assert flow.approve().output == "Paid."


def test_a_provider_that_is_configured_is_not_asked(settings: Any) -> None:
    settings.ABEYANCE_MODEL = "openai:nothing"
    assert drive(desk, A1, model=[say("Here.")]).output == "Here."


# The same flows on the engine and in memory, each against a directory and a mail server of its own


def _plain(events: list[dict[str, Any]]) -> str:
    """Without what differs from run to run: ids, times and what hangs on them."""
    text = json.dumps(events, indent=1)
    text = re.sub(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "<id>", text)
    text = re.sub(r"\b[0-9a-f]{32}\b", "<id>", text)
    text = re.sub(r"<[0-9a-f]{40}@", "<<id>@", text)
    text = re.sub(r'"pyd_ai_[^"]*"', '"<id>"', text)
    text = re.sub(r"sha256:[0-9a-f]{64}", "sha256:…", text)
    return re.sub(r"\d{4}-\d\d-\d\dT[0-9:.]+(Z|\+00:00)", "<time>", text)


def _of(flow: Flow) -> list[dict[str, Any]]:
    return [event for text in flow.journal for event in documents_of(decode_entry(text).events)]


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
@pytest.mark.parametrize("name", ["hr_onboarding", "hr_onboarding_single", "hr_access_bundle"])
def test_hr_flows_write_the_same_journal_in_memory(
    engine: Engine, directory: Directory, sink: Sink, hr: Registry, name: str, verdict: Verdict
) -> None:
    why = "because" if verdict is Verdict.DENY else ""
    run = engine.begin(name, NEWCOMER)
    while run.status == "suspended":
        tool = min(engine.tool_at(gate) for gate in engine.gates(run))
        run = engine.decide(run, verdict, why, tool=tool)
    outside = [len(sink.mails), [len(one.roles or []) for one in directory.accounts()]]
    directory.storage.resources = []
    sink.mails.clear()

    flow = drive(hr.get(name), NEWCOMER)
    while flow.status == "suspended":
        waits = min(gate.tool for gate in flow.gates)
        flow = flow.approve(waits) if verdict is Verdict.APPROVE else flow.deny(why, waits)

    assert flow.status == run.status == "completed"
    assert flow.output == json.loads(run.output or "")
    assert outside == [len(sink.mails), [len(one.roles or []) for one in directory.accounts()]]
    assert _plain(_of(flow)) == _plain(events_of(run))
