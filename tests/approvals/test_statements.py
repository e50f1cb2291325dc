"""Signed decisions: a worker accepts only decisions signed with the key of the web process."""

import json
import shutil
import string
from binascii import a2b_base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from approvals.models import Approval, ToolSchema
from approvals.port.adapter import ApprovalService
from approvals.signed import rows, statements, votes
from runtime.core.values.enums import Decision, Risk, Verdict
from runtime.errors import KeyMissing
from runtime.keyring import files, purposes, signatures
from runtime.models import Gate
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

APPROVED = Decision(verdict=Verdict.APPROVE, by="bea")


@pytest.fixture(autouse=True)
def keys(tmp_path: Path, settings: Settings) -> Iterator[Path]:
    """A folder of keys of this test's own."""
    settings.KEYS_DIR = tmp_path / "keys"
    files._read_ring.cache_clear()
    for purpose in (purposes.DECISIONS, purposes.REQUESTS, purposes.AUDIT, purposes.RIGHTS):
        files.ensure(purpose)
    yield tmp_path / "keys"
    files._read_ring.cache_clear()


def decided(actor: Actor, verdict: Verdict = Verdict.APPROVE) -> Approval:
    approval = seeds.pending()
    seeds.decide(approval, actor, verdict, "As agreed.")
    approval.refresh_from_db()
    return approval


def settled(actor: Actor, outcome: Verdict, **given: Any) -> Approval:
    approval = seeds.in_doubt()
    seeds.settle(approval, actor, outcome, "As seen.", **given)
    approval.refresh_from_db()
    return approval


def sign(approval: Approval, verdict: Verdict = Verdict.APPROVE) -> None:
    """Write the rows of a web that omits its checks."""
    at = seeds.moment(0)
    approval.decided_by, approval.decided_at, approval.reason = "bea", at, ""
    approval.status = Approval.Status.APPROVED
    statements.sign(approval, statements.make(approval, Decision(verdict=verdict, by="bea"), at))
    approval.save()


def check(approval: Approval) -> None:
    seeds.verify_decision(approval)
    seeds.verify_approval(approval)


def refused(approval: Approval, decision: Decision | None = None, **changed: Any) -> str:
    """The refusal of a decision, by default of the one that the run hears with these changes."""
    with pytest.raises(NotConfirmed) as caught:
        seeds.verify_decision(approval, decision or seeds.heard(approval, **changed))
    return str(caught.value)


def test_a_signed_decision_is_verified_and_does_not_repeat_its_request(bea: Actor) -> None:
    approval = decided(bea, Verdict.DENY)
    seeds.verify_decision(approval)
    said = statements.read(approval)
    assert (said.verdict, said.by, said.at) == (Verdict.DENY, "bea", approval.decided_at)
    assert (said.digest, said.result) == (approval.approval_digest, None)
    names = {"at", "by", "effective_at", "reason", "result", "undone", "verdict"}
    assert json.loads(approval.statement or "").keys() == names
    assert len(approval.signature or "") == 88


@pytest.mark.parametrize(
    "result", [None, {}, {"level": 3.0, "text": "é\u202e\U0001f642"}, [1, "2"]]
)
def test_a_reported_result_is_verified(bea: Actor, result: Any) -> None:
    approval = settled(bea, Verdict.HAPPENED, result=result)
    seeds.verify_decision(approval, seeds.heard(approval, result=result))
    assert "differs" in refused(approval, result={"level": 4})
    assert "differs" in refused(decided(bea), result=result or {})


def test_only_the_outcome_run_again_lets_a_call_run_again(bea: Actor) -> None:
    check(settled(bea, Verdict.RUN_AGAIN))
    for other in (settled(bea, Verdict.HAPPENED, result={}), settled(bea, Verdict.GIVE_UP)):
        with pytest.raises(NotConfirmed):
            seeds.verify_approval(other)


def test_a_statement_that_repeats_its_request_is_refused(bea: Actor) -> None:
    approval = decided(bea)
    shortened, signature = approval.statement, approval.signature or ""
    approval.statement = statements.restore_signed_text(approval)
    with pytest.raises(NotConfirmed, match="the statement differs"):
        statements.read(approval)
    approval.statement, approval.signature = shortened, a2b_base64(signature).hex()
    with pytest.raises(NotConfirmed, match="the statement differs"):
        statements.read(approval)


def test_a_signed_vote_is_no_decision(bea: Actor) -> None:
    approval = decided(bea)
    given: dict[str, Any] = {"person": "bea", "stage": 0, "verdict": Verdict.APPROVE, "reason": ""}
    vote = votes.make(approval, at=seeds.moment(0), withdrawn=0, **given)
    approval.statement, approval.key_id = rows.build_signed_text(vote), vote.key_id
    approval.signature = statements._encode_base64(vote.signature)
    with pytest.raises(NotConfirmed, match="the statement is no decision"):
        statements.read(approval)


def test_names_within_a_reason_stay_where_they_are(bea: Actor) -> None:
    reason = '"digest":"sha256:0","request":"1","effective_at":"result":'
    approval = seeds.pending()
    seeds.decide(approval, bea, reason=reason)
    approval.refresh_from_db()
    assert statements.read(approval).reason == reason


def test_a_decision_needs_its_own_signed_statement(bea: Actor) -> None:
    assert refused(seeds.pending(), APPROVED) == "the request has no signed decision"
    approval, other = decided(bea), decided(bea)
    signed = {name: getattr(other, name) for name in ("statement", "signature", "key_id")}
    Approval.objects.filter(pk=approval.pk).update(**signed, decided_at=other.decided_at)
    assert "the statement differs" in refused(approval)
    approval.gate = uuid4()
    assert refused(approval, APPROVED) == "the gate has no request"


def test_every_byte_of_the_statement_and_its_signature_counts(bea: Actor) -> None:
    approval = decided(bea)
    text, signature = approval.statement or "", approval.signature or ""
    for place, letter in enumerate(text):
        approval.statement = text[:place] + chr(ord(letter) ^ 1) + text[place + 1 :]
        with pytest.raises(NotConfirmed):
            statements.read(approval)
    approval.statement = text.replace("{", '{"more":1,', 1)
    with pytest.raises(NotConfirmed):
        statements.read(approval)
    approval.statement = text
    for place, letter in enumerate(signature):
        for other in string.ascii_letters.replace(letter, ""):
            approval.signature = signature[:place] + other + signature[place + 1 :]
            with pytest.raises(NotConfirmed):
                statements.read(approval)
    for half in ("", "00", "zz", "00" * 64):
        approval.signature = half
        with pytest.raises(NotConfirmed):
            statements.read(approval)


def test_write_access_without_a_key_decides_nothing() -> None:
    approval = seeds.pending()
    at = seeds.moment(0)
    approval.decided_by, approval.decided_at, approval.reason = "bea", at, ""
    approval.status = Approval.Status.APPROVED
    approval.statement = statements._encode_statement(statements.make(approval, APPROVED, at))
    approval.signature, approval.key_id = "00" * 64, signatures.sign(purposes.DECISIONS, "x").key_id
    approval.save()
    Gate.objects.filter(pk=approval.gate).update(state=Gate.State.DECIDED)
    assert "the statement differs" in refused(approval, APPROVED)
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(approval)


def test_a_signed_decision_that_the_web_should_not_have_taken_is_rejected(bea: Actor) -> None:
    late = seeds.pending(expires_at=seeds.moment(-1))
    early, doubt = seeds.in_doubt(not_before=seeds.moment(60)), seeds.in_doubt()
    for approval, verdict, why in (
        (late, Verdict.APPROVE, "had expired"),
        (early, Verdict.RUN_AGAIN, "still have been running"),
        (doubt, Verdict.APPROVE, "has no verdict"),
    ):
        sign(approval, verdict)
        assert why in refused(approval, Decision(verdict=verdict, by="bea"))
    own = seeds.pending(requester="bea")
    sign(own)
    with pytest.raises(ApprovalVoid, match="bea started this run"):
        seeds.verify_approval(own)


def test_an_approval_counts_up_to_the_risk_that_was_shown(bea: Actor) -> None:
    approval = seeds.pending(risk=Risk.MEDIUM)
    seeds.decide(approval, bea, Verdict.APPROVE)
    assert ApprovalService().find_schema(approval.gate) == seeds.snapshot(approval.run_id).schema
    assert ApprovalService().find_schema(uuid4()) is None
    for risk in Risk:
        if list(Risk).index(risk) <= list(Risk).index(Risk(approval.risk)):
            seeds.verify_approval(approval, risk=risk)
        else:
            with pytest.raises(ApprovalVoid, match=f"approved at {approval.risk} risk"):
                seeds.verify_approval(approval, risk=risk)
    ToolSchema.objects.filter(digest=approval.schema).delete()
    assert ApprovalService().find_schema(approval.gate) is None, "a lost schema is no error"


def test_an_approval_is_void_once_its_approver_leaves_reviewers(bea: Actor) -> None:
    approval, other = decided(bea), decided(bea)
    User.objects.get(username="bea").groups.clear()
    with pytest.raises(ApprovalVoid, match="risk"):
        seeds.verify_approval(approval)
    User.objects.filter(username="bea").update(is_active=False)
    seeds.verify_decision(approval)  # it was a decision
    with pytest.raises(ApprovalVoid, match="bea approved it"):
        seeds.verify_approval(approval)
    Approval.objects.filter(pk=other.pk).update(reason="Other.")
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(other)


def test_a_worker_without_the_private_key_checks_but_cannot_sign(
    bea: Actor, keys: Path, tmp_path: Path, settings: Settings
) -> None:
    approval, waiting = decided(bea), seeds.pending()
    worker = tmp_path / "worker"
    worker.mkdir()
    for name in ("decisions.public", "requests.keys", "rights.public"):
        shutil.copy(keys / name, worker)
    settings.KEYS_DIR = worker
    files._read_ring.cache_clear()

    check(approval)
    files.ensure(purposes.DECISIONS)  # its start makes no key of its own
    assert not list(worker.glob("*.private"))
    with pytest.raises(ImproperlyConfigured, match=r"decisions\.private"):
        seeds.decide(waiting, bea)
    assert seeds.untouched(waiting)


def test_the_key_of_a_statement_cannot_be_chosen(bea: Actor) -> None:
    approval = decided(bea)
    new = files.rotate(purposes.DECISIONS)
    check(approval)
    Approval.objects.filter(pk=approval.pk).update(key_id=new)
    assert "the statement differs" in refused(approval)
    for changed in ({"key_id": "other"}, {"key_id": approval.key_id, "seal_key_id": "other"}):
        Approval.objects.filter(pk=approval.pk).update(**changed)
        with pytest.raises(KeyMissing, match="other"):
            check(approval)
