"""An approval with changes: its signature, its refusals, and that no change of it on the way counts."""

import json
from dataclasses import replace
from typing import Any

import pytest

from approvals.decisions.decide import undo
from approvals.models import Approval, AuditEntry
from approvals.requests import verification
from approvals.signed import audit
from runtime.core.values.enums import GateKind, Risk, Verdict
from runtime.errors import InvalidInput
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

LESS = {"username": "new.hire", "security_level": 1}


def edited(actor: Actor, **given: Any) -> Approval:
    approval = seeds.pending(**given)
    seeds.decide(approval, actor, "edit", "Enough.", arguments=LESS)
    approval.refresh_from_db()
    return approval


def test_the_changed_arguments_are_signed_sent_and_audited(bea: Actor) -> None:
    approval = edited(bea)
    heard = seeds.heard(approval)
    assert (approval.status, heard.verdict, heard.by) == ("approved", Verdict.EDIT, "bea")
    assert heard.edit is not None
    assert (heard.edit.args, json.loads(approval.edited or "")) == (LESS, LESS)
    seeds.verify_decision(approval)
    seeds.verify_approval(approval, action_digest=heard.edit.digest)
    with pytest.raises(NotConfirmed, match="the action to start differs"):
        seeds.verify_approval(approval)  # of the proposed arguments
    detail = json.loads(AuditEntry.objects.get(run=approval.run_id, act="approved").detail)
    assert (detail["verdict"], detail["edited"]) == ("edit", heard.edit.digest)
    assert audit.verify(approval.run_id) == 2


def test_a_changed_edit_is_not_confirmed(bea: Actor) -> None:
    approval = edited(bea)
    heard = seeds.heard(approval)
    assert heard.edit is not None
    more = {**LESS, "security_level": 3}
    other = replace(heard, edit=replace(heard.edit, args=more))
    for changed, said in ((other, "the edited arguments"), (replace(heard, result=1), "no result")):
        with pytest.raises(NotConfirmed, match=said):
            seeds.verify_decision(approval, changed)
    Approval.objects.filter(id=approval.id).update(edited=json.dumps(more))
    with pytest.raises(NotConfirmed, match="the edited arguments"):
        seeds.verify_approval(approval, action_digest=heard.edit.digest)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({}, "arguments"),
        ({"arguments": None}, "arguments"),
        ({"arguments": [1]}, "arguments"),
        ({"arguments": seeds.ARGS}, "arguments"),
        ({"arguments": {**LESS, "tool": "delete_account"}}, "arguments.tool"),
        ({"arguments": {**LESS, "security_level": "1"}}, "arguments.security_level"),
        ({"arguments": {"username": "new.hire"}}, "arguments.security_level"),
        ({"arguments": {**LESS, "security_level": 1.0}}, "arguments.security_level"),
        ({"arguments": {**LESS, "username": "\x00"}}, "arguments.username"),
        ({"arguments": {**LESS, "username": "x" * 300_000}}, "arguments"),
        ({"arguments": LESS, "verdict": "approve"}, "arguments"),
        ({"arguments": LESS, "verdict": "deny", "reason": "no"}, "arguments"),
        ({"arguments": LESS, "result": 1}, "result"),
        ({"arguments": LESS, "confirm": "another"}, "confirm"),
    ],
    ids=range(14),
)
def test_other_arguments_are_refused_by_name(bea: Actor, given: dict[str, Any], field: str) -> None:
    approval = seeds.pending()
    with pytest.raises(InvalidInput) as refused:
        seeds.decide(approval, bea, **{"verdict": "edit", **given})
    assert refused.value.field == field
    assert seeds.untouched(approval)
    for kind in set(GateKind) - {GateKind.APPROVAL, GateKind.IN_DOUBT}:
        with pytest.raises(InvalidInput) as refused:
            seeds.decide(seeds.pending(kind=kind), bea, "edit", arguments=LESS)
        assert refused.value.field == "verdict"


def test_an_edit_into_a_denied_call_is_refused(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of, args=LESS), seeds.snapshot(of, call="c2.1"))
    seeds.decide(first, bea, "deny", "not even that")
    with pytest.raises(InvalidInput, match="it stays denied"):
        seeds.decide(second, bea, "edit", arguments=LESS)
    seeds.decide(seeds.pending(), bea, "edit", arguments=LESS)  # in another run


def test_an_undone_edit_leaves_the_request_as_it_was(bea: Actor, settings: Any) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    approval = edited(bea, risk=Risk.LOW)
    undo(approval_id=approval.id, actor=bea)
    approval.refresh_from_db()
    assert (approval.status, approval.edited, approval.statement) == ("pending", None, None)
    assert verification.find_fault(approval) is None
    assert not Signal.objects.exists()
