"""Decisions: their effects, and every refusal in its order."""

from typing import Any
from uuid import UUID

import pytest
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals import audit
from approvals.decisions import commit
from approvals.errors import AlreadyDecided, DigestMismatch
from approvals.models import AuditEntry, Request
from approvals.permissions.scopes import Scope
from runtime.core.enums import Decision, Verdict
from runtime.errors import InvalidInput
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import Part
from runtime.store import pool
from tests.support import seeds

pytestmark = pytest.mark.django_db

# A name for text that Postgres cannot hold, which must be refused and not break.
HALF_A_PAIR = "\ud83d"


# Effects of a decision


def test_a_decision_finds_its_request_by_the_id(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the index of pending requests, Postgres would scan all entries since the last VACUUM."""
    lent: list[Part] = []
    monkeypatch.setattr(commit, "settle", lambda **given: lent.extend(given["lent"]))
    seeds.decide(seeds.pending(), bea)
    explain = f"EXPLAIN WITH run AS (SELECT) {lent[0].sql}"
    plan = pool.djangos().execute(explain, {**lent[0].parameters, "effective_at": None}).fetchall()
    assert "approvals_request_pkey" in str(plan)
    assert "request_pending" not in str(plan)


def test_approving_settles_the_gate_wakes_the_run_and_is_audited(
    bea: Actor,
    hints: list[UUID],
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
) -> None:
    request = seeds.pending()
    by_token = seeds.bearer(bea, Scope.APPROVALS_DECIDE)
    long = "\U0001f642" * 2_000
    with django_capture_on_commit_callbacks(execute=True):
        answer = seeds.decide(request, by_token, reason=long)

    assert (answer.status, answer.decided_by) == ("approved", "bea")
    request.refresh_from_db()
    assert (request.status, request.decided_by, request.reason) == ("approved", "bea", long)
    assert request.decided_at == answer.decided_at
    assert Gate.objects.get(pk=request.gate).state == Gate.State.DECIDED
    assert Run.objects.get(pk=request.run_id).mailbox == 1
    assert hints == [request.run_id]
    entry = AuditEntry.objects.get(run=request.run_id, act="approved")
    assert (entry.actor, entry.token, entry.at) == ("bea", by_token.token, answer.decided_at)
    assert entry.subject == f"request {request.id}"
    assert audit.verify(request.run_id) == 2


def test_a_denial_carries_its_reason_verbatim_to_the_run(bea: Actor) -> None:
    request = seeds.pending()
    reason = "  Not before Monday.\r\n\tAsk “HR” \u202efirst \U0001f642 "
    seeds.decide(request, bea, "deny", reason)
    request.refresh_from_db()
    assert (request.status, request.reason) == ("denied", reason)
    assert seeds.heard(request) == Decision(verdict=Verdict.DENY, by="bea", reason=reason)


# Something else was seen


@pytest.mark.django_db(transaction=True)
def test_a_decision_between_reading_and_writing_wins(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, look = seeds.pending(), commit.load

    def overtaken(of: UUID, actor: Actor) -> commit.Loaded | None:
        looked = look(of, actor)
        signed = {"statement": "{}", "signature": "", "key_id": "", "reason": "No."}
        Request.objects.filter(pk=request.pk).update(
            status="denied", decided_by="ada", decided_at=request.created_at, **signed
        )
        return looked

    monkeypatch.setattr(commit, "load", overtaken)
    with pytest.raises(AlreadyDecided) as caught:
        seeds.decide(request, bea)
    assert caught.value.decided_by == "ada"
    assert Gate.objects.get(id=request.gate).state == "open"  # nothing of it was written
    assert not Signal.objects.exists()
    assert Run.objects.get(id=request.run_id).mailbox == 0


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "0" * 64, HALF_A_PAIR])
def test_a_digest_that_is_not_the_current_one_decides_nothing(bea: Actor, digest: str) -> None:
    request = seeds.pending()
    with pytest.raises(DigestMismatch):
        seeds.decide(request, bea, "maybe", digest=digest)  # before the values are looked at
    assert seeds.untouched(request)


def test_a_request_digest_is_valid_for_one_gate_only(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of), seeds.snapshot(of))
    assert first.action_digest == second.action_digest
    with pytest.raises(DigestMismatch):
        seeds.decide(first, bea, digest=second.request_digest)


# 422: names the field


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"digest": None}, "digest"),
        ({"digest": 7}, "digest"),
        ({"verdict": "APPROVE"}, "verdict"),
        ({"verdict": ["approve"]}, "verdict"),
        ({"verdict": HALF_A_PAIR}, "verdict"),
        ({"verdict": "deny", "reason": None}, "reason"),
        ({"verdict": "deny", "reason": " \n\t"}, "reason"),
        ({"reason": 5}, "reason"),
        ({"reason": "x" * 2_001}, "reason"),
        ({"reason": "a\x00b"}, "reason"),
        ({"reason": HALF_A_PAIR}, "reason"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(
    bea: Actor, changed: dict[str, Any], field: str
) -> None:
    request = seeds.pending()
    with pytest.raises(InvalidInput) as caught:
        seeds.decide(request, bea, **changed)
    assert caught.value.extra == {"field": field}
    assert seeds.untouched(request)
