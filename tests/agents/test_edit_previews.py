"""A reviewer who changes a call sees what the changed one would do, approves once, and exactly that happens."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from approvals.decisions.decide import ask_preview, find_preview
from approvals.errors import TamperedWith
from approvals.models import Approval, ApprovalOutcome
from approvals.port.adapter import ApprovalService
from approvals.reads.approval_views import approval
from runtime.control.kill_switches import engage
from runtime.control.start import create
from runtime.core.values.enums import GateKind
from runtime.errors import InvalidInput
from runtime.execution.effects import perform as effect_requests
from runtime.execution.jobs import edit_previews
from runtime.models import EditPreview, Run
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.upkeep import retention
from tests.agents.conftest import Directory
from tests.support import seeds
from tests.support.engine import HandDriven
from tests.support.mail import Sink
from tests.support.seeds import Cast
from tests.support.specs import NEWCOMER

BEA = Actor(person="bea")


class Desk(HandDriven):
    """A worker with the HR agents of the demonstration and the real approvals."""

    def __init__(self, hr: Registry) -> None:
        super().__init__(AgentEffects(hr), ApprovalService())

    def ask(self) -> Approval:
        """Start a run, and return its request: level 3 for a new account."""
        with transaction.atomic():
            actor = Actor(person="ada")
            run = create(agent="hr_onboarding_single", input=NEWCOMER, requester=actor).run
        self.advance_once(run)
        return Approval.objects.get(run=run)

    def preview(self, request: Approval, level: int = 1) -> UUID:
        """Have the call previewed with another level, as a worker does."""
        args = approval(request.id, actor=BEA).args
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
def desk(
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


def test_an_edit_is_previewed_approved_once_and_made_once(desk: Desk, directory: Directory) -> None:
    request = desk.ask()
    preview = desk.preview(request)
    change = {"what": "roles", "before": None, "after": "security-level-1"}
    assert shown(preview, request).shown["changes"] == [change]
    assert Approval.objects.get().status == "pending"
    desk.edit(request, preview)
    decided = approval(request.id, actor=BEA)
    assert decided.edited_preview["shown"]["changes"] == [change]
    assert desk.go_on(request).status == "completed"
    assert roles(directory) == ["security-level-1"]
    assert sum(line.startswith("PATCH") for line in directory.requests) == 1
    assert Approval.objects.filter(kind=GateKind.APPROVAL).count() == 1
    assert ApprovalOutcome.objects.get(approval=request).outcome == "done"


def test_other_consequences_than_those_shown_are_asked_about_again(
    desk: Desk, directory: Directory
) -> None:
    request = desk.ask()
    desk.edit(request, desk.preview(request))
    [account] = directory.accounts()
    account.roles = [{"value": "admin"}]
    assert desk.go_on(request).status == "suspended"
    again = Approval.objects.get(status="pending")
    view = approval(again.id, actor=BEA)
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
    desk: Desk, broken: dict[str, Any], reason: type[Exception]
) -> None:
    request = desk.ask()
    preview = desk.preview(request)
    EditPreview.objects.update(**broken)
    with pytest.raises(reason):
        desk.edit(request, preview)
    assert seeds.untouched(request)


def test_an_edit_without_its_preview_is_refused(desk: Desk) -> None:
    request = desk.ask()
    args = {**approval(request.id, actor=BEA).args, "security_level": 1}
    with pytest.raises(InvalidInput, match="preview these arguments first") as refused:
        seeds.decide(request, BEA, "edit", arguments=args)
    assert refused.value.field == "preview"
    first, second = desk.preview(request), desk.preview(request, 2)
    with pytest.raises(InvalidInput, match="preview the edit again"):
        desk.edit(request, first)  # the second one has taken its place
    with pytest.raises(InvalidInput, match="are those of the preview: leave them out"):
        seeds.decide(request, BEA, "edit", preview=second, arguments=args)
    for verdict in ("approve", "deny"):
        with pytest.raises(InvalidInput, match="only for an approval with changes"):
            seeds.decide(request, BEA, verdict, "no", preview=second)
    assert EditPreview.objects.count() == 1


def test_another_preview_than_the_signed_one_is_not_confirmed(desk: Desk) -> None:
    request = desk.ask()
    desk.edit(request, desk.preview(request))
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
    assert approval(request.id, actor=BEA).tampered
    other = seeds.pending(preview={"shown": {"summary": "Lowers the level"}})
    Approval.objects.filter(id=other.id).update(edited_preview='{"shown": {}}')
    assert "that no person decided" in str(approval(other.id, actor=BEA).tampered)


def test_a_preview_without_a_result_says_why(
    desk: Desk, directory: Directory, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = desk.ask()
    directory.storage.resources = []
    assert "not found" in shown(desk.preview(request), request).missing
    with monkeypatch.context() as patched:
        patched.setattr(effect_requests, "PREVIEW_AGAIN_SECONDS", 0.0)
        assert shown(desk.preview(request), request).missing == "it took longer than 0 s"
    with monkeypatch.context() as patched:
        patched.setattr(edit_previews, "SLOT_SECONDS", 0.0)
        patched.setattr(desk.context.effect_pool, "reserve", lambda *_: False)
        desk.preview(request)
    assert EditPreview.objects.get().problem == edit_previews.BUSY
    engage(agent="", reason="no", actor=Actor(person="admin"))
    desk.preview(request)
    assert EditPreview.objects.get().problem == edit_previews.STOPPED


def test_a_preview_of_a_call_that_is_decided_has_no_result(desk: Desk) -> None:
    request = desk.ask()
    preview = desk.preview(request)
    desk.edit(request, preview)
    desk.go_on(request)
    EditPreview.objects.update(state="queued", ended_at=None)
    desk.perform(preview)
    assert EditPreview.objects.get().problem == edit_previews.CLOSED
    desk.perform(preview)  # a second hint has no effect
    retention.erase(request.run_id)
    assert not EditPreview.objects.exists()
    request.refresh_from_db()
    assert (request.edited_preview, approval(request.id, actor=BEA).tampered) == (None, None)
