"""Decisions: their effects, and every refusal in its order."""

import json
from uuid import UUID, uuid4

import pytest
from django.contrib.auth.models import User
from pytest_django import DjangoCaptureOnCommitCallbacks

from approvals import audit
from approvals.accounts import tokens
from approvals.decisions import commit
from approvals.decisions.decide import decide as record_decision
from approvals.errors import AlreadyDecided, DigestMismatch, NotFound
from approvals.models import AuditEntry, Request, Token
from approvals.permissions.scopes import ALL_SCOPES, Scope
from approvals.queries.requests import Approval
from runtime.errors import Forbidden, InvalidInput, RequestError
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.approvals import Part
from runtime.store import pool
from tests.support import seeds

pytestmark = pytest.mark.django_db

# A name for text that Postgres cannot hold, which must be refused and not break.
HALF_A_PAIR = "\ud83d"


def decide(request: Request, actor: Actor, **changed: object) -> Approval:
    given: dict[str, object] = {
        "verdict": "approve",
        "digest": request.request_digest,
        "reason": "",
    }
    given.update(changed)
    return record_decision(
        request=request.id,
        verdict=given["verdict"],
        digest=given["digest"],
        reason=given["reason"],
        actor=actor,
    )


def with_token(actor: Actor, *scopes: str) -> Actor:
    owner = User.objects.get(username=actor.person)
    return Actor(person=actor.person, token=tokens.create(owner, scopes)[0].public_id)


def untouched(request: Request) -> bool:
    request.refresh_from_db()
    return (
        request.status == Request.Status.PENDING
        and Gate.objects.get(pk=request.gate).state == Gate.State.OPEN
        and not Signal.objects.filter(run=request.run_id).exists()
        and AuditEntry.objects.filter(run=request.run_id).count() == 1
    )


# Effects of a decision


def test_a_decision_finds_its_request_by_the_id(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the index of pending requests, Postgres would scan all entries since the last VACUUM."""
    lent: list[Part] = []
    monkeypatch.setattr(commit, "settle", lambda **given: lent.extend(given["lent"]))
    decide(seeds.pending(), bea)
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
    with django_capture_on_commit_callbacks(execute=True):
        answer = decide(request, bea)

    assert (answer.status, answer.decided_by) == ("approved", "bea")
    request.refresh_from_db()
    assert (request.status, request.decided_by, request.reason) == ("approved", "bea", "")
    assert request.decided_at == answer.decided_at
    assert Gate.objects.get(pk=request.gate).state == Gate.State.DECIDED
    assert Run.objects.get(pk=request.run_id).mailbox == 1
    assert hints == [request.run_id]
    entry = AuditEntry.objects.get(run=request.run_id, act="approved")
    assert (entry.actor, entry.token, entry.at) == ("bea", None, request.decided_at)
    assert entry.subject == f"request {request.id}"
    assert audit.verify(request.run_id) == 2


def test_a_denial_carries_its_reason_verbatim_to_the_run(bea: Actor) -> None:
    request = seeds.pending()
    reason = "  Not before Monday.\r\n\tAsk “HR” \u202efirst \U0001f642 "
    decide(request, bea, verdict="deny", reason=reason)

    request.refresh_from_db()
    assert (request.status, request.reason) == ("denied", reason)
    signal = Signal.objects.get(run=request.run_id)
    body = json.loads(signal.body)
    assert (body["verdict"], body["by"], body["reason"]) == ("deny", "bea", reason)


def test_a_token_decides_for_its_owner_and_is_audited(bea: Actor) -> None:
    request = seeds.pending()
    by_token = with_token(bea, Scope.APPROVALS_DECIDE)
    decide(request, by_token)
    entry = AuditEntry.objects.get(run=request.run_id, act="approved")
    assert (entry.actor, entry.token) == ("bea", by_token.token)


def test_two_requests_of_a_run_are_decided_apart(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of), seeds.snapshot(of, call="c2.1"))
    decide(first, bea)
    second.refresh_from_db()
    assert second.status == Request.Status.PENDING
    decide(second, bea, verdict="deny", reason="Twice is too much.")
    assert audit.verify(of) == 4


# 404: may not read


def test_a_request_that_does_not_exist_is_not_found(bea: Actor) -> None:
    with pytest.raises(NotFound):
        record_decision(request=uuid4(), verdict="approve", digest="", reason="", actor=bea)


def test_an_unreadable_request_looks_like_a_missing_one(cyril: Actor) -> None:
    request = seeds.pending()
    for wrong in ({}, {"digest": "sha256:other"}, {"verdict": "maybe"}, {"digest": None}):
        with pytest.raises(NotFound):
            decide(request, cyril, **wrong)
    assert untouched(request)


def test_a_disabled_reviewer_finds_nothing(bea: Actor) -> None:
    request = seeds.pending()
    User.objects.filter(username="bea").update(is_active=False)
    with pytest.raises(NotFound):
        decide(request, bea)
    assert untouched(request)


def test_a_revoked_token_finds_nothing(bea: Actor) -> None:
    request = seeds.pending()
    by_token = with_token(bea, *ALL_SCOPES)
    Token.objects.update(revoked_at=request.created_at)
    with pytest.raises(NotFound):
        decide(request, by_token)
    assert untouched(request)


def test_a_token_of_another_person_gives_no_permission(bea: Actor, cyril: Actor) -> None:
    request = seeds.pending()
    stolen = Actor(person="bea", token=with_token(cyril, *ALL_SCOPES).token)
    with pytest.raises(NotFound):
        decide(request, stolen)
    assert untouched(request)


# 403: may read, but not decide


def refused(request: Request, actor: Actor, **changed: object) -> str:
    with pytest.raises(Forbidden) as caught:
        decide(request, actor, **changed)
    assert untouched(request)
    return caught.value.code


def test_a_requester_who_reviews_cannot_decide_on_their_own_run(ada: Actor) -> None:
    assert refused(seeds.pending(requester="ada"), ada) == "requester"


def test_neither_can_their_token(ada: Actor) -> None:
    assert refused(seeds.pending(requester="ada"), with_token(ada, *ALL_SCOPES)) == "requester"


def test_a_requester_may_not_deny_their_own_run_either(ada: Actor) -> None:
    assert refused(seeds.pending(), ada, verdict="deny", reason="Changed my mind.") == "requester"


def test_an_admin_reads_but_does_not_decide(admin: Actor) -> None:
    assert refused(seeds.pending(), admin) == "not_eligible"


def test_a_token_without_the_scope_does_not_decide(bea: Actor) -> None:
    others = ALL_SCOPES - {Scope.APPROVALS_DECIDE}
    assert refused(seeds.pending(), with_token(bea, *others)) == "scope"


def test_rights_are_refused_before_races_digests_and_values(bea: Actor, admin: Actor) -> None:
    request = seeds.pending()
    assert refused(request, admin, digest="sha256:other", verdict="maybe") == "not_eligible"
    decide(request, bea)
    with pytest.raises(Forbidden):
        decide(request, admin)


# 409: too late, or something else was seen


def test_a_second_decision_names_the_winner_even_to_themselves(ada: Actor, bea: Actor) -> None:
    request = seeds.pending(requester="cyril")
    decide(request, ada)
    for actor in (bea, ada):
        with pytest.raises(AlreadyDecided) as caught:
            decide(request, actor, verdict="deny", reason="No.")
        assert caught.value.extra == {"decided_by": "ada"}
    request.refresh_from_db()
    assert request.status == Request.Status.APPROVED
    assert audit.verify(request.run_id) == 2


def test_being_late_comes_before_digest_and_values(ada: Actor, bea: Actor) -> None:
    request = seeds.pending(requester="cyril")
    decide(request, ada)
    with pytest.raises(AlreadyDecided):
        decide(request, bea, digest="sha256:other", verdict="maybe", reason=1)


def test_a_gate_closed_by_the_engine_cannot_be_decided(bea: Actor) -> None:
    request = seeds.pending()
    Gate.objects.filter(pk=request.gate).update(state=Gate.State.DECIDED)
    with pytest.raises(AlreadyDecided) as caught:
        decide(request, bea)
    assert caught.value.decided_by is None
    request.refresh_from_db()
    assert request.status == Request.Status.PENDING


@pytest.mark.django_db(transaction=True)
def test_a_decision_between_reading_and_writing_wins(
    bea: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    request, look = seeds.pending(), commit.load

    def overtaken(of: UUID, actor: Actor) -> commit.Loaded | None:
        looked = look(of, actor)
        Request.objects.filter(pk=request.pk).update(
            status="denied",
            decided_by="ada",
            decided_at=request.created_at,
            reason="No.",
            statement="{}",
            signature="",
            key_id="",
        )
        return looked

    monkeypatch.setattr(commit, "load", overtaken)
    with pytest.raises(AlreadyDecided) as caught:
        decide(request, bea)
    assert caught.value.decided_by == "ada"
    assert Gate.objects.get(id=request.gate).state == "open"  # nothing of it was written
    assert not Signal.objects.exists()
    assert Run.objects.get(id=request.run_id).mailbox == 0


@pytest.mark.parametrize("digest", ["", "sha256:", "sha256:" + "0" * 64, "ä", HALF_A_PAIR])
def test_a_digest_that_is_not_the_current_one_decides_nothing(bea: Actor, digest: str) -> None:
    request = seeds.pending()
    with pytest.raises(DigestMismatch):
        decide(request, bea, digest=digest, verdict="maybe")  # before the values are looked at
    assert untouched(request)


def test_a_request_digest_is_valid_for_one_gate_only(bea: Actor) -> None:
    of = seeds.run()
    first, second = seeds.opened(seeds.snapshot(of), seeds.snapshot(of))
    assert first.action_digest == second.action_digest
    with pytest.raises(DigestMismatch):
        decide(first, bea, digest=second.request_digest)


# 422: names the field


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"digest": None}, "digest"),
        ({"digest": 7}, "digest"),
        ({"verdict": "maybe"}, "verdict"),
        ({"verdict": ""}, "verdict"),
        ({"verdict": "APPROVE"}, "verdict"),
        ({"verdict": None}, "verdict"),
        ({"verdict": ["approve"]}, "verdict"),
        ({"verdict": {}}, "verdict"),
        ({"verdict": HALF_A_PAIR}, "verdict"),
        ({"verdict": "deny"}, "reason"),
        ({"verdict": "deny", "reason": None}, "reason"),
        ({"verdict": "deny", "reason": " \n\t"}, "reason"),
        ({"reason": 5}, "reason"),
        ({"reason": "x" * 2_001}, "reason"),
        ({"reason": "a\x00b"}, "reason"),
        ({"reason": HALF_A_PAIR}, "reason"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(
    bea: Actor, changed: dict[str, object], field: str
) -> None:
    request = seeds.pending()
    with pytest.raises(InvalidInput) as caught:
        decide(request, bea, **changed)
    assert caught.value.extra == {"field": field}
    assert untouched(request)


def test_a_reason_may_have_two_thousand_characters(bea: Actor) -> None:
    assert decide(seeds.pending(), bea, reason="\U0001f642" * 2_000).status == "approved"


def test_every_refusal_has_status_code_and_text() -> None:
    refusals: list[RequestError] = [
        NotFound(),
        AlreadyDecided("bea"),
        DigestMismatch(),
        InvalidInput("reason", "is required to deny"),
    ]
    assert [(one.status, one.code) for one in refusals] == [
        (404, "not_found"),
        (409, "already_decided"),
        (409, "digest"),
        (422, "invalid"),
    ]
    assert all(one.detail for one in refusals)
