"""More time for a waiting request: who may give it, and how much. All else stays."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from approvals.decisions import commit
from approvals.decisions.teamwork import MAX_DAYS, MAX_EXTENSIONS, extend
from approvals.errors import AlreadyCancelled, AlreadyDecided, Expired, NotFound
from approvals.models import Approval, AuditEntry
from approvals.port import evidence
from approvals.port.adapter import ApprovalService
from approvals.reads import approval_views
from approvals.requests import verification
from approvals.signed import audit
from runtime.control.interventions import cancel
from runtime.core.values.enums import Risk
from runtime.errors import Forbidden, InvalidInput, Tampered
from runtime.keyring import files, purposes
from runtime.keyring.signatures import PublicKeys
from runtime.models import Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.store.tables.signals import EXTENSION
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds

pytestmark = pytest.mark.django_db

HOUR = timedelta(hours=1)
LADDER = """
rules:
  - name: One
    quorum: 2
    people: [bea, cora]
    escalate: [{people: [dan], expires_after: 100}]
"""


def waiting(**given: Any) -> Approval:
    return seeds.pending(risk=Risk.MEDIUM, **{"expires_at": seeds.moment(600), **given})


def extended(
    approval: Approval, actor: Actor, by: timedelta = HOUR, reason: object = "Later."
) -> Approval:
    """Give the request so much more time, and return it as it is stored."""
    assert approval.expires_at is not None
    until = (approval.expires_at + by).isoformat()
    extend(approval_id=approval.id, until=until, reason=reason, actor=actor)
    approval.refresh_from_db()
    return approval


def document_of(approval: Approval) -> str:
    """The last extension as the run hears it."""
    last = Signal.objects.filter(run=approval.run_id, kind=EXTENSION).latest("id")
    document: str = json.loads(last.body)["document"]
    return document


def test_the_deadline_moves_and_nothing_else(bea: Actor) -> None:
    approval = waiting()
    first, digest = approval.expires_at, approval.approval_digest
    assert first is not None
    extended(approval, bea)
    assert (approval.expires_at, approval.next_at) == (first + HOUR, first + HOUR)
    assert (approval.first_expires_at, approval.approval_digest) == (first, digest)
    assert verification.find_fault(approval) is None
    said = ApprovalService().read_extension(document_of(approval))
    assert (said.by, said.reason, said.before, said.until) == ("bea", "Later.", first, first + HOUR)
    entry = AuditEntry.objects.get(run=approval.run_id, act="extended")
    assert entry.actor == "bea"
    assert json.loads(entry.detail)["until"] == str(first + HOUR)
    assert audit.verify(approval.run_id) == 2


def test_it_can_be_decided_until_the_new_deadline_and_expires_then(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    decided, forgotten = extended(waiting(), bea), extended(waiting(), bea)
    due = forgotten.expires_at
    assert due is not None
    seeds.set_clock(monkeypatch, due - timedelta(seconds=1))
    ApprovalService().expire(forgotten.gate)
    seeds.decide(decided, bea)
    seeds.set_clock(monkeypatch, due)
    ApprovalService().expire(forgotten.gate)
    for approval, status in ((decided, "approved"), (forgotten, "expired")):
        approval.refresh_from_db()
        assert (approval.status, verification.find_fault(approval)) == (status, None)
    seeds.verify_approval(decided)
    assert f"{due:%Y-%m-%d %H:%M:%S}" in (forgotten.reason or "")


def test_a_decision_that_found_the_old_deadline_passed_reads_it_again(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    approval, load = waiting(), commit.load
    due, passed = approval.expires_at, list[commit.LoadedApproval | None]()
    assert due is not None

    def load_once_late(approval_id: UUID, actor: Actor) -> commit.LoadedApproval | None:
        if passed:
            return load(approval_id, actor)
        passed.append(None)  # the extension reads it too
        with monkeypatch.context() as patch:
            seeds.set_clock(patch, due)
            passed.append(load(approval_id, actor))
        extended(approval, bea)
        return passed[-1]

    monkeypatch.setattr(commit, "load", load_once_late)
    assert seeds.decide(approval, bea).status == "approved"
    approval.refresh_from_db()
    assert (approval.expires_at, approval.first_expires_at) == (due + HOUR, due)


def test_those_who_may_decide_and_admins_extend(
    ada: Actor, bea: Actor, cyril: Actor, admin: Actor
) -> None:
    approval = waiting()
    for actor, why in (
        (ada, Forbidden),
        (cyril, NotFound),
        (seeds.bearer(admin, "approvals:read"), NotFound),
    ):
        with pytest.raises(why):
            extended(approval, actor)
    assert not Signal.objects.filter(run=approval.run_id).exists()
    for actor in (bea, admin, seeds.bearer(admin, "admin")):
        extended(approval, actor)
    assert [one.by for one in approval_views.read_approval(approval.id, actor=bea).extensions] == [
        "bea",
        "admin",
        "admin",
    ]
    assert verification.find_fault(approval) is None


@pytest.mark.parametrize(
    ("until", "reason", "why"),
    [
        (-HOUR, "x", "after the present deadline"),
        (timedelta(0), "x", "after the present deadline"),
        (timedelta(days=MAX_DAYS, hours=1), "x", "at most 30 days ahead"),
        (HOUR, " ", "reason: is required"),
        (HOUR, None, "must be text"),
    ],
)
def test_wrong_times_and_reasons_are_refused(
    bea: Actor, until: timedelta, reason: object, why: str
) -> None:
    approval = waiting()
    with pytest.raises(InvalidInput) as caught:
        extended(approval, bea, until, reason)
    assert why in caught.value.all_of_it
    assert seeds.untouched(approval)


@pytest.mark.parametrize(
    "until", ["soon", None, 5, "2030-01-01T09:00", "9999-12-31T23:59:59-12:00"]
)
def test_what_is_no_time_is_refused(bea: Actor, until: object) -> None:
    approval = waiting()
    with pytest.raises(InvalidInput, match="time with its zone"):
        extend(approval_id=approval.id, until=until, reason="x", actor=bea)
    assert seeds.untouched(approval)


def test_what_has_no_deadline_to_move_is_refused(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    doubt, outside = seeds.in_doubt(), waiting()
    is_outside = property(lambda approval: approval.id == outside.id)
    monkeypatch.setattr(Approval, "is_external", is_outside)
    for approval, why in ((doubt, "has no deadline"), (outside, "the agent outside")):
        assert not approval_views.read_approval(approval.id, actor=bea).may_extend
        until = seeds.moment(3600).isoformat()
        with pytest.raises(InvalidInput, match=why):
            extend(approval_id=approval.id, until=until, reason="x", actor=bea)


def test_a_request_is_extended_ten_times_at_most(bea: Actor) -> None:
    approval = waiting()
    for _ in range(MAX_EXTENSIONS):
        extended(approval, bea)
    with pytest.raises(InvalidInput, match="10 times"):
        extended(approval, bea)


def test_a_closed_request_is_not_extended(bea: Actor, admin: Actor) -> None:
    late, decided, cancelled = waiting(expires_at=seeds.moment(-1)), waiting(), waiting()
    seeds.decide(decided, bea)
    cancel(run=cancelled.run_id, actor=admin, reason="Over.")
    for approval, why in (
        (late, Expired),
        (decided, AlreadyDecided),
        (cancelled, AlreadyCancelled),
    ):
        with pytest.raises(why):
            extend(
                approval_id=approval.id, until=seeds.moment(7200).isoformat(), reason="x", actor=bea
            )


def test_votes_and_steps_of_the_escalation_stay(ada: Actor, admin: Actor) -> None:
    """A vote signs the digest, which keeps the first deadline; dan's step had begun by it, and has begun still."""
    bea, _, dan = reviewers("bea", "cora", "dan")
    approval = asked(LADDER, risk=Risk.MEDIUM, expires_at=seeds.moment(50))
    seeds.decide(approval, dan)
    extended(approval, admin)
    assert (approval.status, approval.voted, approval.open_to) == (
        "pending",
        ["dan"],
        ["person:bea", "person:cora", "person:dan"],
    )
    assert seeds.decide(approval, bea).status == "approved"
    approval.refresh_from_db()
    seeds.verify_approval(approval)


def test_a_step_that_comes_still_begins_when_it_would_have(admin: Actor) -> None:
    reviewers("bea", "cora", "dan")
    approval = asked(LADDER, expires_at=seeds.moment(600))
    begins = approval.next_at
    extended(approval, admin)
    assert (approval.next_step, approval.next_at) == ("escalate", begins)


# An attacker who writes to Postgres, and has no key


def test_a_deadline_that_no_person_extended_is_found(bea: Actor) -> None:
    approval = waiting()
    other = extended(waiting(expires_at=approval.expires_at), bea)
    forged = json.dumps([{"text": "{}", "signature": "00", "key_id": "x"}])
    for extensions in (None, "[]", "7", forged, other.extensions):
        Approval.objects.filter(pk=approval.pk).update(
            first_expires_at=approval.expires_at, expires_at=other.expires_at, extensions=extensions
        )
        changed = Approval.objects.get(pk=approval.pk)
        assert verification.find_fault(changed), extensions
    assert approval_views.read_approval(approval.id, actor=bea).extensions == ()


@pytest.mark.parametrize("kept", [0, 1])
def test_an_extension_that_was_removed_is_found_when_it_expires_early(
    bea: Actor, monkeypatch: pytest.MonkeyPatch, kept: int
) -> None:
    """The row looks as before the extension, or the last one. The journal has the later deadline."""
    approval = waiting()
    before = [approval.expires_at, *(extended(approval, bea).expires_at for _ in range(2))]
    documents = json.dumps(json.loads(approval.extensions or "")[:kept])
    Approval.objects.filter(pk=approval.pk).update(expires_at=before[kept], extensions=documents)
    due = before[kept]
    assert due is not None
    seeds.set_clock(monkeypatch, due)
    Signal.objects.all().delete()
    ApprovalService().expire(approval.gate)
    approval.refresh_from_db()
    assert (approval.status, verification.find_fault(approval)) == ("expired", None)
    said = seeds.heard(approval)
    with pytest.raises(NotConfirmed, match="another deadline"):
        ApprovalService().verify_decision(gate=approval.gate, decision=said, deadline=before[2])


def test_a_received_extension_that_no_person_signed_is_refused(bea: Actor) -> None:
    document = json.loads(document_of(extended(waiting(), bea)))
    decision = json.loads(document["text"]) | {"until": "2031-01-01T00:00:00+00:00"}
    for changed in ("", "{}", json.dumps({**document, "text": json.dumps(decision)})):
        with pytest.raises(NotConfirmed):
            ApprovalService().read_extension(changed)


def test_an_auditor_verifies_extensions_with_public_keys(bea: Actor) -> None:
    approval = extended(waiting(), bea)
    of = purposes.DECISIONS
    public_keys = PublicKeys(
        keys={of: {one: files.read_key(of, one) for one in files.list_key_ids(of)}}
    )
    rows = evidence.copy_rows(approval.run_id)
    evidence.verify_rows(rows, approval.run_id, [], {}, public_keys)
    rows["approvals_approval"][0]["expires_at"] = datetime(2040, 1, 1, tzinfo=UTC).isoformat()
    with pytest.raises(Tampered, match="deadline"):
        evidence.verify_rows(rows, approval.run_id, [], {}, public_keys)
