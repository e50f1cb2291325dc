"""Signed decisions: a worker accepts only decisions signed with the key of the web process."""

import json
import shutil
import string
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.core.exceptions import ImproperlyConfigured
from pytest_django import Settings

from approvals.adapter import Approvals
from approvals.errors import TamperedWith
from approvals.models import Request
from approvals.policy import Group
from approvals.requests import snapshot, statements
from runtime.core.enums import Decision, Verdict
from runtime.errors import KeyMissing
from runtime.keyring import files, macs, purposes, signatures
from runtime.models import Gate
from runtime.ports.access import Actor
from runtime.ports.approvals import Approvals as ApprovalsPort
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

approvals: ApprovalsPort = Approvals()


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


def check(request: Request) -> None:
    seeds.verify_decision(request)
    seeds.verify_approval(request)


def refused(request: Request, decision: Decision | None = None, **changed: Any) -> str:
    """The refusal of a decision, by default of the one that the run hears with these changes."""
    with pytest.raises(NotConfirmed) as caught:
        seeds.verify_decision(request, decision or seeds.heard(request, **changed))
    return str(caught.value)


# What holds


@pytest.mark.parametrize("verdict", [Verdict.APPROVE, Verdict.DENY])
def test_a_signed_decision_is_verified(bea: Actor, verdict: Verdict) -> None:
    request = decided(bea, verdict)
    approvals.verify_decision(gate=request.gate, decision=seeds.heard(request))
    said = statements.read(request)
    assert (said.verdict, said.by, said.at) == (verdict, "bea", request.decided_at)
    assert (said.digest, said.result) == (request.request_digest, None)


@pytest.mark.parametrize(
    "result", [None, {}, {"level": 3.0, "text": "é\u202e\U0001f642"}, [1, "2"]]
)
def test_a_reported_result_is_verified(bea: Actor, result: Any) -> None:
    request = settled(bea, Verdict.HAPPENED, result=result)
    approvals.verify_decision(gate=request.gate, decision=seeds.heard(request, result=result))
    other = {"level": 4}
    assert "differs" in refused(request, result=other)


def test_a_call_that_runs_again_is_confirmed_by_that_decision(bea: Actor) -> None:
    check(settled(bea, Verdict.RUN_AGAIN))


@pytest.mark.parametrize("outcome", [Verdict.HAPPENED, Verdict.GIVE_UP])
def test_no_other_outcome_lets_a_call_run_again(bea: Actor, outcome: Verdict) -> None:
    given: dict[str, Any] = {"result": {}} if outcome is Verdict.HAPPENED else {}
    request = settled(bea, outcome, **given)
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(request)


# What does not


@pytest.mark.parametrize(
    "changed",
    [{"verdict": Verdict.DENY}, {"by": "ada"}, {"by": ""}, {"reason": ""}, {"reason": "As agreed"}],
)
def test_a_decision_that_is_not_the_signed_one_is_not_taken_up(
    bea: Actor, changed: dict[str, Any]
) -> None:
    request = decided(bea)
    assert "differs" in refused(request, **changed)


def test_a_result_beside_a_decision_without_one_is_not_taken_up(bea: Actor) -> None:
    request = settled(bea, Verdict.RUN_AGAIN)
    assert refused(request, result={"role": "root"})


def test_a_gate_without_a_request_is_not_verified(bea: Actor) -> None:
    request = decided(bea)
    with pytest.raises(NotConfirmed, match="the gate has no request"):
        approvals.verify_decision(gate=uuid4(), decision=seeds.heard(request))


def test_a_pending_request_is_not_verified(bea: Actor) -> None:
    request = seeds.pending()
    assert refused(request, Decision(verdict=Verdict.APPROVE, by="bea")) == (
        "the request has no signed decision"
    )


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("request", str(uuid4())),
        ("digest", "sha256:other"),
        ("verdict", "approve"),
        ("by", "ada"),
        ("reason", "Go ahead."),
        ("result", "sha256:other"),
        ("at", "2026-01-01T00:00:00+00:00"),
        ("more", 1),
    ],
)
def test_a_changed_statement_is_not_the_signed_one(bea: Actor, field: str, value: Any) -> None:
    request = decided(bea, Verdict.DENY)
    assert request.statement is not None
    text = json.dumps({**json.loads(request.statement), field: value})
    Request.objects.filter(pk=request.pk).update(statement=text)
    assert "the statement differs" in refused(request)


def test_every_byte_of_the_statement_counts(bea: Actor) -> None:
    request = decided(bea)
    assert request.statement is not None
    text = request.statement
    for place in range(len(text)):
        other = chr(ord(text[place]) ^ 1)
        request.statement = text[:place] + other + text[place + 1 :]
        with pytest.raises(NotConfirmed):
            statements.read(request)


def test_every_character_of_the_signature_counts(bea: Actor) -> None:
    """Also the bits of the last one that base64 does not use."""
    request = decided(bea)
    text = request.signature or ""
    for place in range(len(text)):
        for other in string.ascii_letters.replace(text[place], ""):
            request.signature = text[:place] + other + text[place + 1 :]
            with pytest.raises(NotConfirmed):
                statements.read(request)


@pytest.mark.parametrize(
    ("part", "value"),
    [
        *(("signature", value) for value in ("", "00", "zz", "00" * 64)),
        *((part, None) for part in ("statement", "signature", "key_id")),
    ],
)
def test_half_a_signed_statement_is_none(bea: Actor, part: str, value: str | None) -> None:
    request = decided(bea)
    setattr(request, part, value)
    with pytest.raises(NotConfirmed, match="no signed decision" if value is None else None):
        statements.read(request)


def test_a_statement_about_another_request_is_rejected(bea: Actor) -> None:
    request, other = decided(bea), decided(bea)
    Request.objects.filter(pk=request.pk).update(
        statement=other.statement,
        signature=other.signature,
        key_id=other.key_id,
        decided_at=other.decided_at,
    )
    assert "the statement differs" in refused(request)


def test_a_statement_does_not_repeat_its_request(bea: Actor) -> None:
    request = decided(bea)
    assert request.statement is not None
    said = json.loads(request.statement)
    assert said.keys() == {"at", "by", "effective_at", "reason", "result", "undone", "verdict"}
    assert len(request.signature or "") == 88


def test_a_request_of_the_release_before_has_a_whole_statement(bea: Actor) -> None:
    """Its worker, which opened the request, verifies the decision, and reads no other."""
    request = seeds.pending()
    seal = macs.seal(purposes.REQUESTS, request.request_digest)
    Request.objects.filter(pk=request.pk).update(seal=seal.mac)
    seeds.decide(request, bea)
    request.refresh_from_db()
    assert request.statement is not None
    assert json.loads(request.statement)["digest"] == request.request_digest
    signature = signatures.Signature(hex=request.signature or "", key_id=request.key_id or "")
    assert signatures.verify_signature(purposes.DECISIONS, signature, request.statement)
    assert statements.read(request).verdict is Verdict.APPROVE


def test_names_within_a_reason_stay_where_they_are(bea: Actor) -> None:
    reason = '"digest":"sha256:0","request":"1","effective_at":"result":'
    request = seeds.pending()
    seeds.decide(request, bea, reason=reason)
    request.refresh_from_db()
    assert statements.read(request).reason == reason


def test_a_denial_rewritten_as_an_approval_is_found_everywhere(bea: Actor) -> None:
    request = decided(bea, Verdict.DENY)
    Request.objects.filter(pk=request.pk).update(status=Request.Status.APPROVED)
    assert "stored status" in refused(request, verdict=Verdict.APPROVE)
    with pytest.raises(NotConfirmed, match="stored status"):
        seeds.verify_approval(request)


def test_write_access_without_a_key_decides_nothing() -> None:
    request = seeds.pending()
    forger = Request.objects.get(pk=request.pk)
    at = seeds.moment(0)
    forger.decided_by, forger.decided_at, forger.reason = "bea", at, ""
    forger.status = Request.Status.APPROVED
    decision = Decision(verdict=Verdict.APPROVE, by="bea")
    forger.statement = statements._text(statements.make(forger, decision, at))
    forger.signature, forger.key_id = "00" * 64, signatures.sign(purposes.DECISIONS, "x").key_id
    forger.save()
    Gate.objects.filter(pk=request.gate).update(state=Gate.State.DECIDED)
    assert "the statement differs" in refused(request, decision)
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(request)


@pytest.mark.parametrize(
    "changed",
    [
        {"sentence": "Read a file"},
        {"risk": "low"},
        {"requester": "cyril"},
        {"expires_at": seeds.moment(3600)},
        {"result_schema": "{}"},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_request_changed_before_its_decision_starts_nothing(
    bea: Actor, changed: dict[str, Any]
) -> None:
    request = seeds.pending(expires_at=seeds.moment(60))
    for name, value in changed.items():
        setattr(request, name, value)
    request.request_digest = snapshot.request_digest(request)  # an attacker can compute it
    request.save()
    with pytest.raises(TamperedWith):
        seeds.decide(request, bea)
    sign(request, Verdict.APPROVE, status=Request.Status.APPROVED)
    assert "sealed" in refused(request, Decision(verdict=Verdict.APPROVE, by="bea"))
    with pytest.raises(NotConfirmed, match="sealed"):
        seeds.verify_approval(request)


def test_a_request_under_an_unknown_key_waits_for_the_key(bea: Actor) -> None:
    request = decided(bea)
    Request.objects.filter(pk=request.pk).update(seal_key_id="other")
    with pytest.raises(KeyMissing, match="other"):
        check(request)


# Time, which the signed moment is held against


def test_a_decision_signed_after_the_deadline_is_rejected(bea: Actor) -> None:
    request = seeds.pending(expires_at=seeds.moment(-1))
    sign(request, Verdict.APPROVE, status=Request.Status.APPROVED)
    assert "had expired" in refused(request, Decision(verdict=Verdict.APPROVE, by="bea"))


def test_a_signed_run_again_before_its_time_is_rejected(bea: Actor) -> None:
    request = seeds.in_doubt(not_before=seeds.moment(60))
    sign(request, Verdict.RUN_AGAIN, status=Request.Status.APPROVED)
    assert "still have been running" in refused(
        request, Decision(verdict=Verdict.RUN_AGAIN, by="bea")
    )


def test_a_signed_verdict_of_another_kind_is_rejected(bea: Actor) -> None:
    request = seeds.in_doubt()
    sign(request, Verdict.APPROVE, status=Request.Status.APPROVED)
    assert "has no verdict" in refused(request, Decision(verdict=Verdict.APPROVE, by="bea"))


def sign(request: Request, verdict: Verdict, *, status: Request.Status) -> None:
    """Write the rows of a web that omits its checks."""
    at = seeds.moment(0)
    request.decided_by, request.decided_at, request.reason = "bea", at, ""
    request.status = status
    statements.sign(request, statements.make(request, Decision(verdict=verdict, by="bea"), at))
    request.save()


# Rights, at the moment the call starts


def test_an_approval_is_void_once_its_approver_is_disabled(bea: Actor) -> None:
    request = decided(bea)
    User.objects.filter(username="bea").update(is_active=False)
    approvals.verify_decision(gate=request.gate, decision=seeds.heard(request))  # it was a decision
    with pytest.raises(ApprovalVoid, match="bea approved it"):
        seeds.verify_approval(request)


def test_an_approval_is_void_once_its_approver_leaves_reviewers(bea: Actor) -> None:
    request = decided(bea)
    User.objects.get(username="bea").groups.clear()
    with pytest.raises(ApprovalVoid, match="risk"):
        seeds.verify_approval(request)


def test_a_signed_approval_by_the_requester_is_void() -> None:
    request = seeds.pending(requester="bea")
    seeds.person("bea", Group.REVIEWERS)
    sign(request, Verdict.APPROVE, status=Request.Status.APPROVED)
    with pytest.raises(ApprovalVoid, match="bea started this run"):
        seeds.verify_approval(request)


def test_a_forgery_is_no_approval_that_lost_its_rights(bea: Actor) -> None:
    request = decided(bea)
    User.objects.filter(username="bea").update(is_active=False)
    Request.objects.filter(pk=request.pk).update(reason="Other.")
    with pytest.raises(NotConfirmed):
        seeds.verify_approval(request)


# Keys


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
    waiting.refresh_from_db()
    assert waiting.status == Request.Status.PENDING
    assert Gate.objects.get(pk=waiting.gate).state == Gate.State.OPEN


def test_decisions_stay_valid_after_a_key_rotation(bea: Actor, keys: Path) -> None:
    before = decided(bea)
    new = files.rotate(purposes.DECISIONS)
    after = decided(bea)
    assert (before.key_id != new, after.key_id) == (True, new)
    check(before)
    check(after)
    assert str(before.key_id) not in (keys / "decisions.private").read_text()


def test_the_key_of_a_statement_cannot_be_chosen(bea: Actor) -> None:
    request = decided(bea)
    new = files.rotate(purposes.DECISIONS)
    Request.objects.filter(pk=request.pk).update(key_id=new)
    assert "the statement differs" in refused(request)


def test_an_unknown_key_is_reported_as_missing(bea: Actor, keys: Path) -> None:
    request = decided(bea)
    ring = keys / "decisions.public"
    known = ring.read_text()
    ring.write_text(f"other:{'ab' * 32}\n")
    files._ring.cache_clear()
    for ask in (check, seeds.verify_approval):
        with pytest.raises(KeyMissing, match=str(request.key_id)):
            ask(request)
    ring.write_text(known)  # it is brought in while the worker runs
    check(request)
