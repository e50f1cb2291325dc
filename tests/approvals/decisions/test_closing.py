"""Requests that end without a person's decision: expiry denies, cancelling closes, late reviewers are told which."""

import json
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import IntegrityError, transaction
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals import clock
from approvals.errors import AlreadyDecided, Expired
from approvals.models import Approval, AuditEntry
from approvals.port.adapter import ApprovalService
from approvals.requests import snapshot, verification
from approvals.signed import audit
from runtime.core.values.enums import Decision, Verdict
from runtime.errors import Forbidden
from runtime.models import Gate, Run
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

approvals = ApprovalService()


def test_time_denies_and_says_so_to_run_request_and_audit(
    hints: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    due = seeds.moment(-1)
    approval = seeds.pending(expires_at=due)
    with django_capture_on_commit_callbacks(execute=True):
        approvals.expire(approval.gate)

    approval.refresh_from_db()
    assert (approval.status, approval.decided_by, approval.statement) == ("expired", None, None)
    assert approval.reason == f"No decision before {due:%Y-%m-%d %H:%M:%S} UTC."
    assert Gate.objects.get(pk=approval.gate).state == Gate.State.DECIDED
    assert seeds.heard(approval) == Decision(verdict=Verdict.EXPIRE, by="", reason=approval.reason)
    seeds.verify_decision(approval)
    entry = AuditEntry.objects.get(run=approval.run_id, act="expired")
    assert (entry.actor, entry.at) == (None, approval.decided_at)
    assert audit.verify(approval.run_id) == 2
    assert hints == [approval.run_id]


def test_time_decides_once_and_not_before_its_time(bea: Actor) -> None:
    late, early, never = (
        seeds.pending(expires_at=at) for at in (seeds.moment(-1), seeds.moment(60), None)
    )
    for approval in (late, late, early, never):
        approvals.expire(approval.gate)
    for approval, status, count in (
        (late, "expired", 2),
        (early, "pending", 1),
        (never, "pending", 1),
    ):
        approval.refresh_from_db()
        assert (approval.status, audit.verify(approval.run_id)) == (status, count)
    seeds.decide(early, bea)
    Approval.objects.filter(pk=early.pk).update(expires_at=seeds.moment(-1))
    approvals.expire(early.gate)
    with pytest.raises(AlreadyDecided):
        seeds.decide(early, bea, "deny", "No.")


def test_a_gate_that_closed_without_its_request_is_left_alone() -> None:
    approval = seeds.pending(expires_at=seeds.moment(-1))
    Gate.objects.filter(pk=approval.gate).update(state=Gate.State.DECIDED)
    approvals.expire(approval.gate)
    approval.refresh_from_db()
    assert (approval.status, audit.verify(approval.run_id)) == ("pending", 1)
    assert Run.objects.get(pk=approval.run_id).mailbox == 0  # all of it was rolled back


@pytest.mark.parametrize("written_down", [True, False])
def test_a_late_decision_is_told_the_deadline(bea: Actor, admin: Actor, written_down: bool) -> None:
    due = seeds.moment(-1)
    approval = seeds.pending(expires_at=due)
    if written_down:
        approvals.expire(approval.gate)
    with pytest.raises(Forbidden):
        seeds.decide(approval, admin)
    with pytest.raises(Expired) as caught:
        seeds.decide(approval, bea, "maybe", digest="sha256:other")  # before the values
    assert (caught.value.status, caught.value.code) == (410, "expired")
    assert caught.value.extra == {"expires_at": due.isoformat()}
    assert f"{due:%Y-%m-%d %H:%M:%S}" in caught.value.detail
    approval.refresh_from_db()
    assert approval.status == "expired"  # the stored status is the one that the reviewer was told
    seeds.verify_decision(approval)
    assert audit.verify(approval.run_id) == 3  # with the refusal of the admin


EXPIRY = Decision(verdict=Verdict.EXPIRE, by="", reason="x")


def expired() -> dict[str, Any]:
    """The columns of a request that has expired for that reason."""
    return {"status": "expired", "decided_at": seeds.moment(0), "reason": "x"}


def test_time_cannot_be_impersonated() -> None:
    timely, early, never = (
        seeds.pending(expires_at=at) for at in (seeds.moment(-1), seeds.moment(60), None)
    )
    doubt = seeds.in_doubt(expires_at=seeds.moment(-1))
    with pytest.raises(NotConfirmed, match="is pending"):
        seeds.verify_decision(timely, EXPIRY)
    recorded = verification.build_expiry_decision(timely)
    Approval.objects.update(**{**expired(), "reason": recorded.reason})
    assert not seeds.verify_decision(timely, recorded)
    other = "differs from the recorded expiry"
    for approval, said, why in (
        (timely, {"by": "bea"}, other),
        (timely, {"reason": "y"}, other),
        (timely, {"result": 1}, other),
        (timely, {"verdict": Verdict.DENY}, other),
        (early, {}, "has not expired"),
        (never, {}, "has not expired"),
        (doubt, {}, "in_doubt"),
    ):
        with pytest.raises(NotConfirmed, match=why):
            seeds.verify_decision(approval, replace(recorded, **said))


@pytest.mark.parametrize(("digested", "why"), [(False, "stored request"), (True, "sealed")])
def test_a_deadline_that_was_moved_with_its_digest_is_found_too(digested: bool, why: str) -> None:
    approval = seeds.pending(expires_at=seeds.moment(600))
    for name, value in {**expired(), "expires_at": seeds.moment(-1)}.items():
        setattr(approval, name, value)
    if digested:
        approval.approval_digest = snapshot.compute_approval_digest(approval)
    approval.save()
    with pytest.raises(NotConfirmed, match=why):
        seeds.verify_decision(approval, EXPIRY)


def test_the_clock_is_not_the_start_of_the_transaction() -> None:
    with transaction.atomic():
        moments = [clock.read_time() for _ in range(3)]
    assert moments[0] < moments[1] < moments[2]
    assert all(moment.utcoffset() == timedelta(0) for moment in moments)


def close(of: UUID, *requests: Approval, actor: Actor | None) -> None:
    with transaction.atomic():
        gates = [approval.gate for approval in requests]
        approvals.close(run=of, gates=gates, actor=actor, reason="Not needed.")


def test_cancelling_audits_every_pending_request_and_the_run(ada: Actor, bea: Actor) -> None:
    of, other = seeds.run(), seeds.pending()
    first, second, third = seeds.opened(*(seeds.snapshot(of, call=f"c2.{n}") for n in range(3)))
    seeds.decide(second, bea)
    close(of, first, second, third, other, actor=ada)

    for approval, status, by in (
        (first, "cancelled", "ada"),
        (second, "approved", "bea"),
        (third, "cancelled", "ada"),
        (other, "pending", None),
    ):
        approval.refresh_from_db()
        assert (approval.status, approval.decided_by) == (status, by)
    entries = AuditEntry.objects.filter(run=of, act="cancelled").order_by("seq")
    assert [(entry.actor, entry.subject) for entry in entries] == [
        ("ada", f"request {first.id}"),
        ("ada", f"request {third.id}"),
        ("ada", f"run {of}"),
    ]
    assert all(json.loads(entry.detail)["reason"] == "Not needed." for entry in entries)
    assert audit.verify(of) == 3 + 1 + 3


def test_a_cancelled_request_neither_expires_nor_starts() -> None:
    """Here the engine closed it, which names no person and audits no cancelled run."""
    approval = seeds.pending(expires_at=seeds.moment(-1))
    close(approval.run_id, approval, actor=None)
    assert audit.verify(approval.run_id) == 2
    approvals.expire(approval.gate)
    approval.refresh_from_db()
    assert (approval.status, approval.decided_by) == ("cancelled", None)
    assert approval.reason == "Not needed."
    with pytest.raises(NotConfirmed, match="cancelled"):
        seeds.verify_approval(approval)
    with pytest.raises(NotConfirmed):
        approvals.verify_decision(
            gate=approval.gate, decision=Decision(verdict=Verdict.APPROVE, by="ada")
        )


@pytest.mark.parametrize(
    ("status", "given"),
    [
        *((status, {"statement": "{}"}) for status in ("expired", "cancelled")),
        *((status, {"decided_by": "bea"}) for status in ("approved", "denied", "answered")),
        ("approved", {}),
    ],
)
def test_only_a_decided_request_has_a_statement(status: str, given: dict[str, str]) -> None:
    approval = seeds.pending()
    with pytest.raises(IntegrityError, match="approval_decided_by_somebody"), transaction.atomic():
        Approval.objects.filter(pk=approval.pk).update(
            status=status, decided_at=seeds.moment(0), reason="", **given
        )
