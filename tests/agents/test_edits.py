"""A reviewer changes a call: its preview is approved once, and exactly these arguments are used."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from agents.sdk import tool
from agents.sdk.scripts import Turn, together
from agents.testing import Flow, call, drive, say
from agents.testing.approvals import ApprovalStub
from approvals.decisions.decide import ask_preview, find_preview
from approvals.errors import TamperedWith
from approvals.models import Approval, ApprovalOutcome
from approvals.port.adapter import ApprovalService
from approvals.reads.approval_views import read_approval
from runtime.control.kill_switches import engage
from runtime.core.documents.codec import decode_entry
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import CallRefused, GateOpened, Retried
from runtime.core.run.forks import without_permissions
from runtime.core.run.reducer import evolve, make_initial_state, step
from runtime.core.values.enums import CallState, GateKind, Risk
from runtime.errors import InvalidInput
from runtime.execution.effects import perform as effect_requests
from runtime.execution.jobs import edit_previews
from runtime.keyring import sealing
from runtime.models import EditPreview, Run
from runtime.ports.access import Actor
from runtime.ports.agents import CallInfo
from runtime.ports.approvals import NotConfirmed, PolicyFacts, Ruling
from runtime.upkeep import retention
from tests.agents.conftest import Directory
from tests.support import seeds
from tests.support.engine import HandDriven, start_run
from tests.support.mail import Sink
from tests.support.seeds import Cast
from tests.support.specs import NEWCOMER, spec_of

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


clerk = spec_of("desk", tools=[pay, log_in, dial])
ADA, LESS = {"to": "ada", "euros": 400}, {"to": "ada", "euros": 40}
PAY = call("pay", **ADA)


@pytest.fixture(autouse=True)
def _nothing_paid() -> None:
    PAID.clear()


def at_desk(*model: Any) -> Flow:
    return drive(clerk, {"name": "A-1"}, model=model)


def folded(flow: Flow, to: int | None = None) -> Continuation:
    now = make_initial_state(flow._worker.now.run)
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


# Previews of edited calls


BEA = Actor(person="bea")


class Desk(HandDriven):
    """A worker with the HR agents of the demonstration and the real approvals."""

    def __init__(self, hr: Registry) -> None:
        super().__init__(AgentEffects(hr), ApprovalService())

    def ask(self) -> Approval:
        """Start a run, and return its request: level 3 for a new account."""
        run = start_run("hr_onboarding_single", NEWCOMER)
        self.advance_once(run)
        return Approval.objects.get(run=run)

    def preview(self, request: Approval, level: int = 1) -> UUID:
        """Have the call previewed with another level, as a worker does."""
        args = read_approval(request.id, actor=BEA).args
        preview = ask_preview(
            approval_id=request.id,
            digest=request.approval_digest,
            arguments={**args, "security_level": level},
            actor=BEA,
        )
        assert preview is not None
        self.perform(preview)
        return preview

    def perform(self, preview: UUID) -> None:
        context = self.context
        edit_previews.perform(preview, handler=context.handler, effect_pool=context.effect_pool)

    def edit(self, request: Approval, preview: UUID) -> None:
        seeds.decide(request, BEA, "edit", preview=preview)

    def go_on(self, request: Approval) -> Run:
        return self.advance_once(request.run_id)


@pytest.fixture
def hr_desk(
    by_hand: None, cast: Cast, directory: Directory, sink: Sink, hr: Registry
) -> Iterator[Desk]:
    one = Desk(hr)
    yield one
    one.close()


def roles(directory: Directory) -> list[str]:
    [account] = directory.accounts()
    return [one.value for one in account.roles or []]


def shown(preview: UUID, request: Approval) -> Any:
    found = find_preview(approval_id=request.id, preview=preview, actor=BEA)
    assert found is not None
    return found.preview()


def test_an_edit_is_previewed_approved_once_and_made_once(
    hr_desk: Desk, directory: Directory
) -> None:
    request = hr_desk.ask()
    preview = hr_desk.preview(request)
    change = {"what": "roles", "before": None, "after": "security-level-1"}
    assert shown(preview, request).shown["changes"] == [change]
    assert Approval.objects.get().status == "pending"
    hr_desk.edit(request, preview)
    decided = read_approval(request.id, actor=BEA)
    assert decided.edited_preview["shown"]["changes"] == [change]
    assert hr_desk.go_on(request).status == "completed"
    assert roles(directory) == ["security-level-1"]
    assert sum(line.startswith("PATCH") for line in directory.requests) == 1
    assert Approval.objects.filter(kind=GateKind.APPROVAL).count() == 1
    assert ApprovalOutcome.objects.get(approval=request).outcome == "done"


def test_other_consequences_than_those_shown_are_asked_about_again(
    hr_desk: Desk, directory: Directory
) -> None:
    request = hr_desk.ask()
    hr_desk.edit(request, hr_desk.preview(request))
    [account] = directory.accounts()
    account.roles = [{"value": "admin"}]
    assert hr_desk.go_on(request).status == "suspended"
    again = Approval.objects.get(status="pending")
    view = read_approval(again.id, actor=BEA)
    assert view.args["security_level"] == 1
    assert view.preview["before"]["changes"][0]["before"] is None
    assert view.preview["shown"]["changes"][0]["before"] == "admin"
    assert roles(directory) == ["admin"]


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ({"args": '{"security_level": 5}'}, TamperedWith),
        ({"result": '{"shown": null, "material": ""}'}, TamperedWith),
        ({"gate": UUID(int=1)}, InvalidInput),
        ({"by": "ada"}, InvalidInput),
        ({"ended_at": None, "state": "running"}, InvalidInput),
        ({"problem": "no slot"}, InvalidInput),
    ],
)
def test_only_a_preview_that_its_worker_signed_is_approved(
    hr_desk: Desk, broken: dict[str, Any], reason: type[Exception]
) -> None:
    request = hr_desk.ask()
    preview = hr_desk.preview(request)
    EditPreview.objects.update(**broken)
    with pytest.raises(reason):
        hr_desk.edit(request, preview)
    assert seeds.untouched(request)


def test_an_edit_without_its_preview_is_refused(hr_desk: Desk) -> None:
    request = hr_desk.ask()
    args = {**read_approval(request.id, actor=BEA).args, "security_level": 1}
    with pytest.raises(InvalidInput, match="preview these arguments first") as refused:
        seeds.decide(request, BEA, "edit", arguments=args)
    assert refused.value.field == "preview"
    first, second = hr_desk.preview(request), hr_desk.preview(request, 2)
    with pytest.raises(InvalidInput, match="preview the edit again"):
        hr_desk.edit(request, first)  # the second one has taken its place
    with pytest.raises(InvalidInput, match="are those of the preview: leave them out"):
        seeds.decide(request, BEA, "edit", preview=second, arguments=args)
    for verdict in ("approve", "deny"):
        with pytest.raises(InvalidInput, match="only for an approval with changes"):
            seeds.decide(request, BEA, verdict, "no", preview=second)
    assert EditPreview.objects.count() == 1


def test_another_preview_than_the_signed_one_is_not_confirmed(hr_desk: Desk) -> None:
    request = hr_desk.ask()
    hr_desk.edit(request, hr_desk.preview(request))
    request.refresh_from_db()
    seeds.verify_decision(request)
    heard = seeds.heard(request)
    assert heard.edit is not None
    assert heard.edit.preview is not None
    for preview in (None, replace(heard.edit.preview, material="sha256:other")):
        with pytest.raises(NotConfirmed, match="differs from the signed one"):
            seeds.verify_decision(
                request, replace(heard, edit=replace(heard.edit, preview=preview))
            )
    Approval.objects.update(edited_preview='{"shown": {"summary": "Changes nothing"}}')
    with pytest.raises(NotConfirmed, match="the stored preview of the edited call"):
        seeds.verify_approval(request, action_digest=heard.edit.digest)
    assert read_approval(request.id, actor=BEA).tampered
    other = seeds.pending(preview={"shown": {"summary": "Lowers the level"}})
    Approval.objects.filter(id=other.id).update(edited_preview='{"shown": {}}')
    assert "that no person decided" in str(read_approval(other.id, actor=BEA).tampered)


def test_a_preview_without_a_result_says_why(
    hr_desk: Desk, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = hr_desk.ask()
    directory.storage.resources = []
    assert "not found" in shown(hr_desk.preview(request), request).missing
    with monkeypatch.context() as patched:
        patched.setattr(effect_requests, "PREVIEW_AGAIN_SECONDS", 0.0)
        assert shown(hr_desk.preview(request), request).missing == "it took longer than 0 s"
    with monkeypatch.context() as patched:
        patched.setattr(edit_previews, "SLOT_SECONDS", 0.0)
        patched.setattr(hr_desk.context.effect_pool, "reserve", lambda *_: False)
        hr_desk.preview(request)
    assert EditPreview.objects.get().problem == edit_previews.BUSY
    engage(agent="", reason="no", actor=Actor(person="admin"))
    hr_desk.preview(request)
    assert EditPreview.objects.get().problem == edit_previews.STOPPED


def test_a_preview_of_a_call_that_is_decided_has_no_result(hr_desk: Desk) -> None:
    request = hr_desk.ask()
    preview = hr_desk.preview(request)
    hr_desk.edit(request, preview)
    hr_desk.go_on(request)
    EditPreview.objects.update(state="queued", ended_at=None)
    hr_desk.perform(preview)
    assert EditPreview.objects.get().problem == edit_previews.CLOSED
    hr_desk.perform(preview)  # a second hint has no effect
    retention.erase(request.run_id)
    assert not EditPreview.objects.exists()
    request.refresh_from_db()
    assert (request.edited_preview, read_approval(request.id, actor=BEA).tampered) == (None, None)
