"""Permissions to act and to read, for each person and each scope."""

from dataclasses import replace

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import JSONField, Value
from django.utils import timezone
from pytest_django import Settings

from approvals.decisions.decide import undo
from approvals.errors import TamperedWith
from approvals.models import Approval, Token
from approvals.port.adapter import ApprovalService
from approvals.reads import inbox
from approvals.reads.approval_views import read_approval
from approvals.requests import verification
from approvals.rights import approval_rights
from approvals.rights.access import AccessService
from approvals.rights.principals import ALL_SCOPES, Scope, find_principal
from approvals.signed import rows as signed_rows
from runtime.core.values.enums import Decision, Risk, Verdict
from runtime.errors import Forbidden
from runtime.models import Run
from runtime.ports.access import Access as AccessPort
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from tests.support import seeds

pytestmark = pytest.mark.django_db

access: AccessPort = AccessService()

EVERYBODY = {"runs:read", "runs:cancel", "runs:control", "approvals:read"}


@pytest.fixture
def cast(ada: Actor, bea: Actor, cyril: Actor, admin: Actor) -> dict[str, Actor]:
    people = (ada, bea, cyril, admin)
    return {one.person: one for one in people}


def refusal(actor: Actor, scope: str) -> str | None:
    try:
        access.require(actor, scope)
    except Forbidden as refused:
        return refused.code
    return None


def readable(actor: Actor) -> list[str]:
    """The requesters of the runs that the actor may read."""
    found = Run.objects.filter(access.select_readable_runs(actor)).order_by("requester")
    return list(found.values_list("requester", flat=True))


@pytest.mark.parametrize(
    ("person", "rights"),
    [
        ("ada", EVERYBODY | {"runs:start", "approvals:decide"}),
        ("bea", EVERYBODY | {"approvals:decide"}),
        ("cyril", EVERYBODY),
        ("admin", EVERYBODY | {"runs:start", "events:send", "instances:manage", "admin"}),
    ],
)
@pytest.mark.parametrize("scope", sorted(ALL_SCOPES))
def test_rights_by_group(cast: dict[str, Actor], person: str, rights: set[str], scope: str) -> None:
    expected = None if scope in rights else "not_eligible"
    assert refusal(cast[person], scope) == expected
    assert refusal(seeds.bearer(cast[person], *ALL_SCOPES), scope) == expected
    others = ALL_SCOPES - {scope}
    assert refusal(seeds.bearer(cast[person], *others), scope) == "scope"


def test_a_disabled_person_may_do_and_read_nothing(ada: Actor, bea: Actor, admin: Actor) -> None:
    seeds.pending(requester="ada")
    token, revoked = (seeds.bearer(actor, *ALL_SCOPES) for actor in (ada, bea))
    Token.objects.filter(public_id=revoked.token).update(revoked_at=timezone.now())
    User.objects.exclude(username="bea").update(is_active=False)
    for actor in (ada, token, admin, revoked):
        assert all(refusal(actor, scope) == "not_eligible" for scope in ALL_SCOPES)
        assert readable(actor) == []
        assert not access.may_read_continuations(actor)
        assert not access.may_cancel(actor, "ada")


def test_requester_reviewers_and_admins_read_a_run(cast: dict[str, Actor]) -> None:
    of = seeds.run()
    seeds.opened(seeds.snapshot(of), seeds.snapshot(of))
    seeds.run(requester="cyril")  # no reviewer was asked about it
    found = {name: readable(actor) for name, actor in cast.items()}
    assert found == {"ada": ["ada"], "bea": ["ada"], "cyril": ["cyril"], "admin": ["ada", "cyril"]}
    assert [name for name, actor in cast.items() if access.may_read_continuations(actor)] == [
        "admin"
    ]


def test_an_admin_by_token_needs_the_scope_of_admins(cast: dict[str, Actor]) -> None:
    seeds.run(requester="ada")
    without = seeds.bearer(cast["admin"], *(ALL_SCOPES - {Scope.ADMIN}))
    for actor, runs in ((without, []), (seeds.bearer(cast["admin"], *ALL_SCOPES), ["ada"])):
        assert readable(actor) == runs
        assert access.may_read_continuations(actor) is bool(runs)
        assert access.may_cancel(actor, "ada") is bool(runs)
    assert readable(seeds.bearer(cast["bea"], *ALL_SCOPES)) == []  # the scope makes no admin


@pytest.mark.parametrize(
    "excluded", [[], ["ada"], ["ada", "bea"], ["bea"], [None, "bea"], {}, "bea", None]
)
def test_lists_find_the_people_whom_a_request_excludes(bea: Actor, excluded: object) -> None:
    """For each value of the column, a request is in exactly one of the lists of a reviewer."""
    row = seeds.pending()
    Approval.objects.filter(pk=row.pk).update(excluded=Value(excluded, JSONField()))
    principal = find_principal(bea)
    rows = Approval.objects.filter(status=Approval.Status.PENDING)
    own = rows.filter(approval_rights.match_undecidable_requests(principal)).exists()
    assert own is (isinstance(excluded, list) and "bea" in excluded)
    assert rows.filter(approval_rights.match_decidable_requests(principal)).exists() is not own


def test_an_index_finds_the_requests_that_exclude_a_reviewer(bea: Actor) -> None:
    seeds.pending()
    names = [name for name in signed_rows.list_columns(Approval) if name not in ("id", "gate")]
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO approvals_approval (id, gate, {', '.join(names)})"
            f" SELECT gen_random_uuid(), gen_random_uuid(), {', '.join(names)}"
            " FROM approvals_approval, generate_series(1, 3000)"
        )
        cursor.execute("ANALYZE approvals_approval")
    plan = Approval.objects.filter(
        approval_rights.match_undecidable_requests(find_principal(bea)),
        status=Approval.Status.PENDING,
    ).explain()
    assert "approval_excluded_others" in plan
    assert "approval_own_pending" in plan


# The people in a run's origin cannot decide in it: its requester and everyone who steered it


def test_a_person_in_the_origin_before_the_gate_cannot_decide(bea: Actor) -> None:
    """Their message may still be in the mailbox when the gate opens."""
    run = seeds.run()
    Run.objects.filter(pk=run).update(origin=["ada", "bea"])
    (request,) = seeds.opened(seeds.snapshot(run))
    assert read_approval(request.id, actor=bea).origin == ("ada", "bea")
    assert inbox.count_requests(find_principal(bea)) == inbox.Counts(
        mine=0, in_doubt=0, for_others=1
    )
    with pytest.raises(Forbidden) as caught:
        seeds.decide(request, bea)
    assert caught.value.code == "origin"


def test_a_person_who_joined_the_origin_has_approved_and_undoes_nothing(
    bea: Actor, settings: Settings
) -> None:
    run = seeds.run()
    asked = [seeds.snapshot(run, risk=Risk.MEDIUM) for _ in range(2)]
    approved, request = seeds.opened(*asked)
    seeds.decide(approved, bea)
    settings.SIGNOFF_UNDO_SECONDS = 60
    seeds.decide(request, bea)
    with transaction.atomic():
        ApprovalService().join(run=run, person="bea")
    with pytest.raises(ApprovalVoid, match="bea"):
        seeds.verify_approval(approved)
    with pytest.raises(Forbidden):
        undo(approval_id=request.id, actor=bea)


def test_the_sealed_origin_may_not_decide(ada: Actor, monkeypatch: pytest.MonkeyPatch) -> None:
    """The web does not sign changed rows; workers reject statements that a web signed without checking."""
    snapshot = seeds.snapshot(seeds.run("admin"), requester="admin")
    (request,) = seeds.opened(replace(snapshot, origin=("ada", "admin")))
    Approval.objects.filter(pk=request.pk).update(origin=[], excluded=[])
    with pytest.raises(TamperedWith):
        seeds.decide(request, ada, reason="ok")
    monkeypatch.setattr(verification, "find_fault", lambda row: None)
    seeds.decide(request, ada, reason="ok")
    Approval.objects.filter(pk=request.pk).update(origin=request.origin, excluded=request.excluded)
    decision = Decision(verdict=Verdict.APPROVE, by="ada", reason="ok")
    with pytest.raises(NotConfirmed, match="ada, who decided, is in the run's origin"):
        seeds.verify_decision(request, decision)
