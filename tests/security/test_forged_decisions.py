"""If the approved call or its decider is changed between decision and resumption, nothing runs."""

import json
from typing import Any
from uuid import UUID, uuid4

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from django.utils import timezone

from approvals.models import Approval
from approvals.requests import snapshot
from approvals.signed import statements
from runtime.control.interventions import pause
from runtime.core.values.enums import Decision, Verdict
from runtime.models import Gate, Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import VerifiedApproval
from tests.support import seeds
from tests.support.office import BEA, Target

# Every column of a request that describes the approved call or the decision; and a reason that is named.
CHANGES: dict[str, tuple[Any, str]] = {
    "args": ('{"username": "newhire", "security_level": 5}', "the stored call"),
    "schema": ('{"type": "object"}', "the stored call"),
    "path": (["hr_onboarding", "set_privileges"], "the stored call"),
    "effect": ("read", "the stored call"),
    "tool": ("create_account", "the stored call"),
    "action_digest": ("sha256:" + "0" * 64, "the stored call"),
    "risk": ("low", "the stored request"),
    "sentence": ("Do nothing", "the stored request"),
    "requester": ("cyril", "the stored request"),
    "origin": ([], "the stored request"),
    "frame": ("0", "the stored request"),
    "call": ("c9.0", "the stored request"),
    "nonce": ("0" * 32, "the stored request"),
    "policy_version": ("0", "the stored request"),
    "kind": ("in_doubt", "the stored request"),
    "expires_at": (None, "the stored request"),
    "first_expires_at": ("2000-01-01T00:00:00Z", "the stored request"),
    "not_before": ("2000-01-01T00:00:00Z", "the stored request"),
    "result_schema": ("{}", "the stored request"),
    "preview": ("{}", "the stored request"),
    "rule": ("{}", "the stored request"),
    "revises": (uuid4(), "the stored request"),
    "revision": (2, "the stored request"),
    "created_at": ("2000-01-01T00:00:00Z", "the stored request"),
    "gate": (uuid4(), "the gate has no request"),
    "approval_digest": ("sha256:" + "0" * 64, "the stored request"),
    "seal": ("0" * 64, "the stored request differs from the sealed one"),
    "status": ("denied", "the stored status"),
    "decided_by": ("admin", "the stored decider"),
    "decided_at": ("2000-01-01T00:00:00Z", "the stored time"),
    "effective_at": ("2000-01-01T00:00:00Z", "the stored effective time"),
    "reason": ("it is fine", "the stored reason"),
    "statement": ("{}", "the statement differs from the signed one"),
    "edited": ("{}", "the stored verdict"),
    "edited_preview": ("{}", "the stored preview of the edited call"),
    "signature": ("00" * 64, "the statement differs from the signed one"),
}
# Columns that do not describe the decision, or whose change leaves the run unchanged instead of quarantining it.
ELSEWHERE = {"id", "run", "key_id", "seal_key_id", "removed_at", "excluded"}
# test_votes.py, test_deputies.py, test_uses.py and test_extend.py forge these
ELSEWHERE |= {"votes", "decided_for", "voted_for", "allowance", "allowance_use", "extensions"}
# Columns and rows that only lists and pages read
LISTED = {"channel", "outcome", "voted", "open_to", "readers", "next_step", "next_at", "escalated"}
LISTED |= {"undecidable_at", "claim", "comments", "handover", "readings", "viewers"}


@pytest.mark.parametrize("field", CHANGES)
def test_a_changed_request_is_not_carried_out(target: Target, field: str) -> None:
    run = target.start()
    approval = target.decide(run)
    value, reason = CHANGES[field]
    assert getattr(approval, field) != value
    assert Approval.objects.filter(id=approval.id).update(**{field: value}) == 1
    target.assert_parked(run, reason)


def test_no_column_of_a_request_is_left_out() -> None:
    columns = {field.name for field in Approval._meta.get_fields()}
    assert columns == CHANGES.keys() | ELSEWHERE | LISTED


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize(
    ("field", "value"), [("verdict", "deny"), ("by", "admin"), ("reason", "it is fine")]
)
def test_a_changed_message_is_refused(target: Target, field: str, value: str, paused: bool) -> None:
    run = target.decided()
    _rewrite(run, **{field: value})
    if paused:
        pause(run=run, actor=Actor(person="ada"), reason="")
    target.assert_parked(run, "the decision of gate")


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"verdict": "maybe"}'])
def test_a_forged_message_is_not_received(target: Target, body: str) -> None:
    run = target.decided()
    Signal.objects.filter(run=run).update(body=body)
    target.assert_parked(run, "cannot be read")


def test_a_message_about_another_gate_decides_nothing(target: Target) -> None:
    """An attacker who can write here can hold a decision back; only a person notices it."""
    run = target.decided()
    _rewrite(run, gate=str(uuid4()))
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0


def test_a_denial_does_not_become_an_approval(target: Target) -> None:
    run = target.start()
    approval = target.decide(run, Verdict.DENY, "no")
    Approval.objects.filter(id=approval.id).update(status="approved")
    _rewrite(run, verdict="approve")
    target.assert_parked(run, "the stored status")


@pytest.mark.parametrize("signed_again", [False, True])
def test_changed_arguments_with_new_digests_fail_the_signature_also_of_an_attacker(
    target: Target, signed_again: bool
) -> None:
    run = target.start()
    approval = target.decide(run)
    approval.args = '{"username": "newhire", "security_level": 5}'
    approval.action_digest = snapshot.compute_action_digest(approval) or ""
    approval.approval_digest = snapshot.compute_approval_digest(approval)
    if signed_again:
        decision = Decision(verdict=Verdict.APPROVE, by="bea", reason="")
        assert approval.decided_at is not None
        approval.statement = statements._encode_statement(
            statements.make(approval, decision, approval.decided_at)
        )
        text = f"signoff.decisions.v1\n{approval.statement}".encode()
        approval.signature = Ed25519PrivateKey.generate().sign(text).hex()
    approval.save()
    target.assert_parked(run, "the statement differs from the signed one")


def test_a_changed_request_that_the_web_signs_is_not_carried_out(target: Target) -> None:
    """No person has seen the engine's request; the statement that the web then signs is valid."""
    run = target.start()
    approval = target.request(run)
    approval.sentence = "Give no rights"
    approval.approval_digest = snapshot.compute_approval_digest(approval)
    decision = Decision(verdict=Verdict.APPROVE, by="bea", reason="")
    approval.status, approval.decided_by, approval.reason = "approved", "bea", ""
    approval.decided_at = timezone.now()
    statements.sign(approval, statements.make(approval, decision, approval.decided_at))
    approval.save()
    Gate.objects.filter(run=run).update(state="decided")
    body = {"gate": str(approval.gate), "verdict": "approve", "by": "bea"}
    text = json.dumps({**body, "reason": "", "result": None, "edit": None})
    Signal.objects.create(run_id=run, kind="gate_decided", body=text)
    target.touch("runtime_run", run, "mailbox = mailbox + 1, due_at = now()")
    target.assert_parked(run, "the decision of gate")


@pytest.mark.parametrize("field", ["args", "schema", "statement", "signature", "decided_by"])
def test_an_approval_is_looked_at_again_just_before_the_effect(target: Target, field: str) -> None:
    value, reason = CHANGES[field]
    run = target.decided()
    verify = target.context.approvals.verify_approval

    def tampered(**asked: Any) -> VerifiedApproval:
        Approval.objects.filter(run=run).update(**{field: value})
        return verify(**asked)

    target.context.approvals.verify_approval = tampered  # type: ignore[method-assign]
    target.assert_parked(run, reason)


@pytest.mark.parametrize(
    ("field", "value"), [("result", {"message_id": "2"}), ("verdict", "give_up"), ("by", "admin")]
)
def test_a_changed_settlement_is_not_taken_up(target: Target, field: str, value: Any) -> None:
    run = target.in_doubt()
    approval = target.in_doubt_request(run)
    seeds.settle(approval, BEA, "happened", "I asked the newcomer.", result={"message_id": "1"})
    started = target.started(run, "send_welcome_mail")
    _rewrite(run, **{field: value})
    target.assert_parked(run, "the decision differs from the signed one")
    assert target.started(run, "send_welcome_mail") == started == 1


def _rewrite(run: UUID, **values: Any) -> None:
    signal = Signal.objects.get(run=run)
    signal.body = json.dumps(json.loads(signal.body) | values)
    signal.save()
