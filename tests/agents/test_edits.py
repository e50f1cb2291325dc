"""A person may change the arguments of a call: exactly these are used, and its model reads that they were changed."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import pytest

from agents.effect_handler import AgentEffects
from agents.sdk import tool
from agents.sdk.scripts import Turn, together
from agents.testing import Flow, call, drive, say
from agents.testing.approvals import ApprovalStub
from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import CallRefused, GateOpened, Retried
from runtime.core.run.forks import without_permissions
from runtime.core.run.reducer import evolve, initial, step
from runtime.core.values.enums import CallState, Risk
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import PolicyFacts, Ruling
from tests.support.specs import spec_of

PAID: list[tuple[str, int]] = []


@tool(approval=True, sentence="Pay {euros} euros to {to}")
def pay(to: str, euros: int, memo: dict[str, str] | None = None) -> int:
    """Pays."""
    PAID.append((to, euros))
    return euros


@tool(approval=True, sentence="Log in to {system}", secret_args=["password"])
def log_in(system: str, password: str, note: str = "") -> str:
    """Logs in."""
    return f"{system} with {password}"


@tool(approval=True, sentence="Dial {number}", secret_args=["pin"])
def dial(number: str, pin: str = "") -> str:
    """Dials."""
    return number


desk = spec_of("desk", tools=[pay, log_in, dial])
ADA, LESS = {"to": "ada", "euros": 400}, {"to": "ada", "euros": 40}
PAY = call("pay", **ADA)


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def at_desk(*model: Any) -> Flow:
    return drive(desk, {"name": "A-1"}, model=model)


def folded(flow: Flow, to: int | None = None) -> Continuation:
    now = initial(flow._worker.now.run)
    for text in flow.journal[:to]:
        entry = decode_entry(text)
        now = step(now, entry.events, head="", at=entry.at)
    return now


def asked(flow: Flow) -> int:
    return sum(isinstance(event, GateOpened) for event in flow.events)


def test_the_call_runs_with_the_changed_arguments_and_its_model_reads_that() -> None:
    def second(turn: Turn) -> Any:
        heard = turn.result("pay")
        assert heard is not None
        return say(f"{heard.outcome} {heard.edited} {heard.content}")

    flow = at_desk(PAY, second).edit({"euros": 40})
    assert (PAID, flow.output) == ([("ada", 40)], f"success {LESS} 40")
    [made] = folded(flow, -1).frames["0"].calls
    assert (made.args, made.proposed, made.edited and made.edited.by) == (LESS, ADA, "bea")


def test_the_replaced_call_is_asked_again_and_the_edited_one_by_its_own_rules() -> None:
    flow = at_desk(PAY, PAY, call("pay", **LESS), say("Done.")).edit({"euros": 40})
    digest = flow.gate.action_digest
    assert (asked(flow), flow._worker.now.edits) == (2, {digest: "bea"})
    with patch.object(flow._worker._approvals, "judge", return_value=Ruling(gated=False)):
        assert (
            flow.deny("no").output == "Done."
        )  # the third call needs no approval under this policy
    other = at_desk(PAY, PAY, say("Done."))
    with patch.object(other._worker._approvals, "judge", return_value=Ruling(gated=False)):
        other.edit({"euros": 40})
        assert (asked(other), other.gate.args) == (2, ADA)


def test_an_edit_into_a_denied_call_is_refused() -> None:
    def last(turn: Turn) -> Any:
        heard = turn.result("pay")
        return say(heard.why if heard else "")

    flow = at_desk(call("pay", **LESS), PAY, last).deny("not to ada").edit({"euros": 40})
    assert (PAID, sum(isinstance(event, CallRefused) for event in flow.events)) == ([], 1)
    assert "not to ada" in str(flow.output)


def test_an_edit_into_another_call_of_the_turn_is_refused() -> None:
    def judge(_: object, info: CallInfo, facts: PolicyFacts) -> Ruling:
        return Ruling(gated=facts.args["euros"] > LESS["euros"])

    with patch.object(ApprovalStub, "judge", judge):
        flow = at_desk(together(call("pay", **LESS), PAY), say("Done.")).edit({"euros": 40})
    assert (PAID, flow.output) == ([("ada", 40)], "Done.")
    assert sum(isinstance(event, CallRefused) for event in flow.events) == 1


@pytest.fixture
def risen() -> Iterator[None]:
    """The code says that a call to pay less is riskier."""
    described = AgentEffects.describe

    def describe(effects: AgentEffects, **call: Any) -> CallInfo:
        risk = Risk.HIGH if call["args"] == LESS else Risk.MEDIUM
        return replace(described(effects, **call), risk=risk, judged=True)

    with patch.object(AgentEffects, "describe", describe):
        yield


@pytest.mark.usefixtures("risen")
def test_a_higher_risk_of_the_edited_call_is_asked_about() -> None:
    flow = at_desk(PAY, say("Done.")).edit({"euros": 40})
    assert (PAID, flow.gate.args, flow.gate.risk) == ([], LESS, Risk.HIGH)
    flow.approve()
    [made] = folded(flow, -1).frames["0"].calls
    assert (PAID, made.proposed) == ([("ada", 40)], ADA)


@pytest.mark.usefixtures("risen")
def test_a_fork_and_a_run_that_is_tried_again_ask_about_the_proposed_arguments() -> None:
    flow = at_desk(PAY).edit({"euros": 40})
    again = [without_permissions(flow._worker.now)]
    flow._worker.cancel(by="", reason="its models failed")
    flow._worker.go_on()
    again.append(evolve(flow._worker.now, Retried(by="admin", reason="")))
    for now in again:
        [made] = now.frames["0"].calls
        assert (made.state, made.args, made.edited) == (CallState.PROPOSED, ADA, None)
        assert list(now.edits.values()) == ["bea"]


def test_a_secret_stays_and_is_not_read_by_its_editor() -> None:
    flow = at_desk(
        call("log_in", system="a", password="hunter2"), lambda turn: say(str(turn.results[0]))
    )
    with pytest.raises(InvalidInput, match="secret and cannot be changed"):
        flow.edit({"password": "mine"})
    with pytest.raises(InvalidInput, match="must not hold a sealed secret"):
        at_desk(PAY).edit({"memo": {sealing.MARK: "k:x"}})
    flow.edit({"system": "b", "password": sealing.REDACTED})
    assert "b with hunter2" in str(flow.output)
    assert f"'password': '{sealing.REDACTED}'" in str(flow.output)


def test_no_editor_adds_a_secret_that_the_model_left_out() -> None:
    flow = at_desk(call("dial", number="1"), lambda turn: say(str(turn.results[0])))
    with pytest.raises(InvalidInput, match="secret and cannot be changed"):
        flow.edit({"pin": "1234"})
