"""Requests that end without a person's decision: expiry denies, cancelling closes, late reviewers are told which."""

import json
from dataclasses import replace
from datetime import timedelta, timezone
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals import audit, clock
from approvals.adapter import Approvals
from approvals.errors import AlreadyDecided, Expired
from approvals.models import AuditEntry, Request
from approvals.permissions.access import Access
from approvals.permissions.scopes import ALL_SCOPES, Scope
from approvals.requests import snapshot
from runtime.core.enums import Decision, Verdict
from runtime.errors import Forbidden
from runtime.models import Gate, Run
from runtime.ports.access import Access as AccessPort
from runtime.ports.access import Actor
from runtime.ports.approvals import Approvals as ApprovalsPort
from runtime.ports.approvals import NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

approvals: ApprovalsPort = Approvals()
access: AccessPort = Access()


# Time


def test_time_denies_and_says_so_to_run_request_and_audit(
    hints: list[UUID], django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks
) -> None:
    due = seeds.moment(-1)
    request = seeds.pending(expires_at=due)
    with django_capture_on_commit_callbacks(execute=True):
        approvals.expire(request.gate)

    request.refresh_from_db()
    assert (request.status, request.decided_by, request.statement) == ("expired", None, None)
    assert request.reason == f"No decision before {due:%Y-%m-%d %H:%M:%S} UTC."
    assert Gate.objects.get(pk=request.gate).state == Gate.State.DECIDED
    assert seeds.heard(request) == Decision(verdict=Verdict.EXPIRE, by="", reason=request.reason)
    seeds.verify_decision(request)
    entry = AuditEntry.objects.get(run=request.run_id, act="expired")
    assert (entry.actor, entry.at) == (None, request.decided_at)
    assert audit.verify(request.run_id) == 2
    assert hints == [request.run_id]


def test_time_decides_once_and_not_before_its_time(bea: Actor) -> None:
    late, early, never = (
        seeds.pending(expires_at=at) for at in (seeds.moment(-1), seeds.moment(60), None)
    )
    for request in (late, late, early, never):
        approvals.expire(request.gate)
    for request, status, count in (
        (late, "expired", 2),
        (early, "pending", 1),
        (never, "pending", 1),
    ):
        request.refresh_from_db()
        assert (request.status, audit.verify(request.run_id)) == (status, count)
    seeds.decide(early, bea)
    Request.objects.filter(pk=early.pk).update(expires_at=seeds.moment(-1))
    approvals.expire(early.gate)
    early.refresh_from_db()
    assert early.status == "approved"


def test_a_gate_that_closed_without_its_request_is_left_alone() -> None:
    request = seeds.pending(expires_at=seeds.moment(-1))
    Gate.objects.filter(pk=request.gate).update(state=Gate.State.DECIDED)
    approvals.expire(request.gate)
    request.refresh_from_db()
    assert (request.status, audit.verify(request.run_id)) == ("pending", 1)
    assert Run.objects.get(pk=request.run_id).mailbox == 0  # all of it was rolled back


@pytest.mark.parametrize("written_down", [True, False])
def test_a_late_decision_is_told_the_deadline(bea: Actor, written_down: bool) -> None:
    due = seeds.moment(-1)
    request = seeds.pending(expires_at=due)
    if written_down:
        approvals.expire(request.gate)
    with pytest.raises(Expired) as caught:
        seeds.decide(request, bea, "maybe", digest="sha256:other")  # before the values
    assert (caught.value.status, caught.value.code) == (410, "expired")
    assert caught.value.extra == {"expires_at": due.isoformat()}
    assert f"{due:%Y-%m-%d %H:%M:%S}" in caught.value.detail
    request.refresh_from_db()
    assert request.status == "expired"  # the stored status is the one that the reviewer was told
    seeds.verify_decision(request)
    assert audit.verify(request.run_id) == 2


def test_rights_are_refused_before_the_deadline(admin: Actor) -> None:
    request = seeds.pending(expires_at=seeds.moment(-1))
    with pytest.raises(Forbidden):
        seeds.decide(request, admin)
    request.refresh_from_db()
    assert request.status == "pending"


def test_a_decision_in_time_stays_after_the_deadline(bea: Actor, ada: Actor) -> None:
    request = seeds.pending(requester="cyril", expires_at=seeds.moment(60))
    seeds.decide(request, bea)
    Request.objects.filter(pk=request.pk).update(expires_at=seeds.moment(-1))
    with pytest.raises(AlreadyDecided) as caught:
        seeds.decide(request, ada)
    assert caught.value.decided_by == "bea"


@pytest.mark.parametrize(
    ("expires_at", "said", "why"),
    [
        (-1, {"by": "bea"}, "differs from the recorded expiry"),
        (-1, {"reason": "y"}, "differs from the recorded expiry"),
        (-1, {"result": 1}, "differs from the recorded expiry"),
        (-1, {"verdict": Verdict.DENY}, "no signed decision"),
        (60, {}, "has not expired"),
        (None, {}, "has not expired"),
    ],
)
def test_time_cannot_be_impersonated(
    expires_at: float | None, said: dict[str, Any], why: str
) -> None:
    at = None if expires_at is None else seeds.moment(expires_at)
    request = seeds.pending(expires_at=at)
    Request.objects.update(**expired())
    with pytest.raises(NotConfirmed, match=why):
        seeds.verify_decision(request, replace(EXPIRY, **said))


EXPIRY = Decision(verdict=Verdict.EXPIRE, by="", reason="x")


def expired() -> dict[str, Any]:
    """The columns of a request that has expired for that reason."""
    return {"status": "expired", "decided_at": seeds.moment(0), "reason": "x"}


def test_expiry_ends_only_expired_approvals() -> None:
    with pytest.raises(NotConfirmed, match="is pending"):
        seeds.verify_decision(seeds.pending(expires_at=seeds.moment(-1)), EXPIRY)
    doubt = seeds.in_doubt(expires_at=seeds.moment(-1))
    Request.objects.update(**expired())
    with pytest.raises(NotConfirmed, match="in_doubt"):
        seeds.verify_decision(doubt, EXPIRY)


@pytest.mark.parametrize(("digested", "why"), [(False, "stored request"), (True, "sealed")])
def test_a_deadline_that_was_moved_with_its_digest_is_found_too(digested: bool, why: str) -> None:
    request = seeds.pending(expires_at=seeds.moment(600))
    for name, value in {**expired(), "expires_at": seeds.moment(-1)}.items():
        setattr(request, name, value)
    if digested:
        request.request_digest = snapshot.request_digest(request)
    request.save()
    with pytest.raises(NotConfirmed, match=why):
        seeds.verify_decision(request, EXPIRY)


def test_the_zone_a_deadline_was_given_in_does_not_matter(bea: Actor) -> None:
    east = timezone(timedelta(hours=5, minutes=30))
    request = seeds.pending(expires_at=seeds.moment(60).astimezone(east))
    seeds.decide(request, bea)
    seeds.verify_approval(request)


def test_the_clock_is_not_the_start_of_the_transaction() -> None:
    with transaction.atomic():
        moments = [clock.now() for _ in range(3)]
    assert moments[0] < moments[1] < moments[2]
    assert all(moment.utcoffset() == timedelta(0) for moment in moments)


# Cancelling


def close(
    of: UUID, *requests: Request, actor: Actor | None = None, reason: str = "Not needed."
) -> None:
    with transaction.atomic():
        approvals.close(run=of, gates=[one.gate for one in requests], actor=actor, reason=reason)


def test_cancelling_audits_every_pending_request_and_the_run(ada: Actor, bea: Actor) -> None:
    of = seeds.run()
    first, second, third = seeds.opened(*(seeds.snapshot(of, call=f"c2.{n}") for n in range(3)))
    seeds.decide(second, bea)
    close(of, first, second, third, actor=ada)

    for request, status, by in (
        (first, "cancelled", "ada"),
        (second, "approved", "bea"),
        (third, "cancelled", "ada"),
    ):
        request.refresh_from_db()
        assert (request.status, request.decided_by) == (status, by)
    entries = AuditEntry.objects.filter(run=of, act="cancelled").order_by("seq")
    assert [(entry.actor, entry.subject) for entry in entries] == [
        ("ada", f"request {first.id}"),
        ("ada", f"request {third.id}"),
        ("ada", f"run {of}"),
    ]
    assert all(json.loads(entry.detail)["reason"] == "Not needed." for entry in entries)
    assert audit.verify(of) == 3 + 1 + 3


def test_cancelling_a_run_without_requests_writes_one_audit_row(ada: Actor) -> None:
    of = seeds.run()
    close(of, actor=ada)
    [entry] = AuditEntry.objects.filter(run=of)
    assert (entry.act, entry.actor, entry.subject) == ("cancelled", "ada", f"run {of}")


def test_gates_closed_by_the_engine_name_no_person() -> None:
    request = seeds.pending()
    close(request.run_id, request, reason="The run failed.")
    request.refresh_from_db()
    assert (request.status, request.decided_by) == ("cancelled", None)
    assert request.reason == "The run failed."
    assert audit.verify(request.run_id) == 2


def test_only_gates_of_the_run_are_closed(ada: Actor) -> None:
    request, other = seeds.pending(), seeds.pending()
    close(request.run_id, request, other, actor=ada)
    other.refresh_from_db()
    assert other.status == "pending"


def test_a_cancelled_request_neither_expires_nor_starts(ada: Actor) -> None:
    request = seeds.pending(expires_at=seeds.moment(-1))
    close(request.run_id, request, actor=ada)
    approvals.expire(request.gate)
    request.refresh_from_db()
    assert request.status == "cancelled"
    with pytest.raises(NotConfirmed, match="cancelled"):
        seeds.verify_approval(request)
    with pytest.raises(NotConfirmed):
        approvals.verify_decision(
            gate=request.gate, decision=Decision(verdict=Verdict.APPROVE, by="ada")
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
    request = seeds.pending()
    with pytest.raises(IntegrityError, match="request_decided_by_somebody"), transaction.atomic():
        Request.objects.filter(pk=request.pk).update(
            status=status, decided_at=seeds.moment(0), reason="", **given
        )


# Who may cancel


def test_requesters_cancel_their_own_runs_and_admins_any(
    ada: Actor, bea: Actor, cyril: Actor, admin: Actor
) -> None:
    may = {
        (actor.person, requester)
        for actor in (ada, bea, cyril, admin)
        for requester in ("ada", "cyril")
        if access.may_cancel(actor, requester)
    }
    assert may == {("ada", "ada"), ("cyril", "cyril"), ("admin", "ada"), ("admin", "cyril")}


@pytest.mark.parametrize(
    ("scopes", "person", "expected"),
    [
        (ALL_SCOPES, "ada", True),
        (ALL_SCOPES, "admin", True),
        ({Scope.RUNS_CANCEL}, "ada", True),
        (ALL_SCOPES - {Scope.RUNS_CANCEL}, "ada", False),
        (ALL_SCOPES - {Scope.RUNS_CANCEL}, "admin", False),
        (ALL_SCOPES - {Scope.ADMIN}, "admin", False),
    ],
)
def test_a_token_cancels_as_far_as_its_scopes_go(
    ada: Actor, admin: Actor, scopes: set[str], person: str, expected: bool
) -> None:
    token = seeds.bearer(Actor(person=person), *scopes)
    assert access.may_cancel(token, "ada") is expected


def test_a_disabled_person_cannot_cancel(ada: Actor) -> None:
    User.objects.filter(username="ada").update(is_active=False)
    assert not access.may_cancel(ada, "ada")
