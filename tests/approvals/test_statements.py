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

from approvals.adapter import Approvals
from approvals.models import Request
from approvals.requests import statements
from runtime.core.enums import Decision, Risk, Verdict
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
    files._ring.cache_clear()
    for purpose in (purposes.DECISIONS, purposes.REQUESTS, purposes.AUDIT, purposes.RIGHTS):
        files.ensure(purpose)
    yield tmp_path / "keys"
    files._ring.cache_clear()


def decided(actor: Actor, verdict: Verdict = Verdict.APPROVE) -> Request:
    request = seeds.pending()
    seeds.decide(request, actor, verdict, "As agreed.")
    request.refresh_from_db()
    return request


def settled(actor: Actor, outcome: Verdict, **given: Any) -> Request:
    request = seeds.in_doubt()
    seeds.settle(request, actor, outcome, "As seen.", **given)
    request.refresh_from_db()
    return request


def sign(request: Request, verdict: Verdict = Verdict.APPROVE) -> None:
    """Write the rows of a web that omits its checks."""
    at = seeds.moment(0)
    request.decided_by, request.decided_at, request.reason = "bea", at, ""
    request.status = Request.Status.APPROVED
    statements.sign(request, statements.make(request, Decision(verdict=verdict, by="bea"), at))
    request.save()


def check(request: Request) -> None:
    seeds.verify_decision(request)
    seeds.verify_approval(request)


def refused(request: Request, decision: Decision | None = None, **changed: Any) -> str:
    """The refusal of a decision, by default of the one that the run hears with these changes."""
    with pytest.raises(NotConfirmed) as caught:
        seeds.verify_decision(request, decision or seeds.heard(request, **changed))
    return str(caught.value)


def test_a_signed_decision_is_verified_and_does_not_repeat_its_request(bea: Actor) -> None:
    request = decided(bea, Verdict.DENY)
    seeds.verify_decision(request)
    said = statements.read(request)
    assert (said.verdict, said.by, said.at) == (Verdict.DENY, "bea", request.decided_at)
    assert (said.digest, said.result) == (request.request_digest, None)
    names = {"at", "by", "effective_at", "reason", "result", "undone", "verdict"}
    assert json.loads(request.statement or "").keys() == names
    assert len(request.signature or "") == 88


@pytest.mark.parametrize(
    "result", [None, {}, {"level": 3.0, "text": "é\u202e\U0001f642"}, [1, "2"]]
)
def test_a_reported_result_is_verified(bea: Actor, result: Any) -> None:
    request = settled(bea, Verdict.HAPPENED, result=result)
    seeds.verify_decision(request, seeds.heard(request, result=result))
    assert "differs" in refused(request, result={"level": 4})
    assert "differs" in refused(decided(bea), result=result or {})


def test_only_the_outcome_run_again_lets_a_call_run_again(bea: Actor) -> None:
    check(settled(bea, Verdict.RUN_AGAIN))
    for other in (settled(bea, Verdict.HAPPENED, result={}), settled(bea, Verdict.GIVE_UP)):
        with pytest.raises(NotConfirmed):
            seeds.verify_approval(other)


def test_a_statement_that_repeats_its_request_is_refused(bea: Actor) -> None:
    request = decided(bea)
    shortened, signature = request.statement, request.signature or ""
    request.statement = statements._completed(str(shortened), request)
    with pytest.raises(NotConfirmed, match="the statement differs"):
        statements.read(request)
    request.statement, request.signature = shortened, a2b_base64(signature).hex()
    with pytest.raises(NotConfirmed, match="the statement differs"):
        statements.read(request)


def test_names_within_a_reason_stay_where_they_are(bea: Actor) -> None:
    reason = '"digest":"sha256:0","request":"1","effective_at":"result":'
    request = seeds.pending()
    seeds.decide(request, bea, reason=reason)
    request.refresh_from_db()
    assert statements.read(request).reason == reason


def test_a_decision_needs_its_own_signed_statement(bea: Actor) -> None:
    assert refused(seeds.pending(), APPROVED) == "the request has no signed decision"
    request, other = decided(bea), decided(bea)
    signed = {name: getattr(other, name) for name in ("statement", "signature", "key_id")}
    Request.objects.filter(pk=request.pk).update(**signed, decided_at=other.decided_at)
    assert "the statement differs" in refused(request)
    request.gate = uuid4()
    assert refused(request, APPROVED) == "the gate has no request"


def test_every_byte_of_the_statement_and_its_signature_counts(bea: Actor) -> None:
    request = decided(bea)
    text, signature = request.statement or "", request.signature or ""
    for place, letter in enumerate(text):
        request.statement = text[:place] + chr(ord(letter) ^ 1) + text[place + 1 :]
        with pytest.raises(NotConfirmed):
            statements.read(request)
    request.statement = text.replace("{", '{"more":1,', 1)
    with pytest.raises(NotConfirmed):
        statements.read(request)
    request.statement = text
    for place, letter in enumerate(signature):
        for other in string.ascii_letters.replace(letter, ""):
            request.signature = signature[:place] + other + signature[place + 1 :]
            with pytest.raises(NotConfirmed):
                statements.read(request)
    for half in ("", "00", "zz", "00" * 64):
        request.signature = half
        with pytest.raises(NotConfirmed):
            statements.read(request)


def test_write_access_without_a_key_decides_nothing() -> None:
    request = seeds.pending()
    at = seeds.moment(0)
    request.decided_by, request.decided_at, request.reason = "bea", at, ""
    request.status = Request.Status.APPROVED
    request.statement = statements._text(statements.make(request, APPROVED, at))
    request.signature, request.key_id = "00" * 64, signatures.sign(purposes.DECISIONS, "x").key_id
    request.save()
    Gate.objects.filter(pk=request.gate).update(state=Gate.State.DECIDED)
    assert "the statement differs" in refused(request, APPROVED)
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(request)


def test_a_signed_decision_that_the_web_should_not_have_taken_is_rejected(bea: Actor) -> None:
    late = seeds.pending(expires_at=seeds.moment(-1))
    early, doubt = seeds.in_doubt(not_before=seeds.moment(60)), seeds.in_doubt()
    for request, verdict, why in (
        (late, Verdict.APPROVE, "had expired"),
        (early, Verdict.RUN_AGAIN, "still have been running"),
        (doubt, Verdict.APPROVE, "has no verdict"),
    ):
        sign(request, verdict)
        assert why in refused(request, Decision(verdict=verdict, by="bea"))
    own = seeds.pending(requester="bea")
    sign(own)
    with pytest.raises(ApprovalVoid, match="bea started this run"):
        seeds.verify_approval(own)


def test_an_approval_counts_up_to_the_risk_that_was_shown(bea: Actor) -> None:
    request = seeds.pending(risk=Risk.MEDIUM)
    seeds.decide(request, bea, Verdict.APPROVE)
    assert Approvals().schema_at(request.gate) == seeds.snapshot(request.run_id).schema
    assert Approvals().schema_at(uuid4()) is None
    for risk in Risk:
        if list(Risk).index(risk) <= list(Risk).index(Risk(request.risk)):
            seeds.verify_approval(request, risk=risk)
        else:
            with pytest.raises(ApprovalVoid, match=f"approved at {request.risk} risk"):
                seeds.verify_approval(request, risk=risk)


def test_an_approval_is_void_once_its_approver_leaves_reviewers(bea: Actor) -> None:
    request, other = decided(bea), decided(bea)
    User.objects.get(username="bea").groups.clear()
    with pytest.raises(ApprovalVoid, match="risk"):
        seeds.verify_approval(request)
    User.objects.filter(username="bea").update(is_active=False)
    seeds.verify_decision(request)  # it was a decision
    with pytest.raises(ApprovalVoid, match="bea approved it"):
        seeds.verify_approval(request)
    Request.objects.filter(pk=other.pk).update(reason="Other.")
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(other)


def test_a_worker_without_the_private_key_checks_but_cannot_sign(
    bea: Actor, keys: Path, tmp_path: Path, settings: Settings
) -> None:
    request, waiting = decided(bea), seeds.pending()
    worker = tmp_path / "worker"
    worker.mkdir()
    for name in ("decisions.public", "requests.keys", "rights.public"):
        shutil.copy(keys / name, worker)
    settings.KEYS_DIR = worker
    files._ring.cache_clear()

    check(request)
    files.ensure(purposes.DECISIONS)  # its start makes no key of its own
    assert not list(worker.glob("*.private"))
    with pytest.raises(ImproperlyConfigured, match=r"decisions\.private"):
        seeds.decide(waiting, bea)
    assert seeds.untouched(waiting)


def test_the_key_of_a_statement_cannot_be_chosen(bea: Actor) -> None:
    request = decided(bea)
    new = files.rotate(purposes.DECISIONS)
    check(request)
    Request.objects.filter(pk=request.pk).update(key_id=new)
    assert "the statement differs" in refused(request)
    for changed in ({"key_id": "other"}, {"key_id": request.key_id, "seal_key_id": "other"}):
        Request.objects.filter(pk=request.pk).update(**changed)
        with pytest.raises(KeyMissing, match="other"):
            check(request)
