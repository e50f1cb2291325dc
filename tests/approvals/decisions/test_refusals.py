"""Every refusal of a person for every kind of request: it names its cause, and nothing is written."""

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction

from approvals.adapter import Approvals
from approvals.errors import AlreadyDecided, ApprovalError, Cancelled, NotFound
from approvals.models import Request, Token
from approvals.permissions.scopes import ALL_SCOPES, Scope
from approvals.policy import Group
from runtime.core.enums import GateKind
from runtime.errors import Forbidden
from runtime.models import Gate
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.cast import GROUPS

pytestmark = pytest.mark.django_db

Refused = Callable[[Request], Actor]
VERDICTS = {
    GateKind.APPROVAL: "approve",
    GateKind.HOLD: "continue",
    GateKind.LIMIT: "stop",
    GateKind.VERSION: "continue",
    GateKind.IN_DOUBT: "give_up",
}
kinds = pytest.mark.parametrize("kind", VERDICTS)


def decide(request: Request, actor: Actor, *, wrong: bool = False) -> None:
    """Decide in the way of its kind; `wrong` values are looked at after everything else."""
    verdict = "maybe" if wrong else VERDICTS[GateKind(request.kind)]
    if request.kind == GateKind.IN_DOUBT:
        seeds.settle(request, actor, verdict, 1 if wrong else "No trace.")
    else:
        seeds.decide(request, actor, verdict, "No.", digest="sha256:other" if wrong else ...)


def _person(name: str) -> Refused:
    return lambda request: seeds.person(name, *GROUPS[name])


def _bearer(name: str, *without: str) -> Refused:
    return lambda request: seeds.bearer(_person(name)(request), *(ALL_SCOPES - {*without}))


def _disabled(request: Request) -> Actor:
    bea = _person("bea")(request)
    User.objects.filter(username="bea").update(is_active=False)
    return bea


def _revoked(request: Request) -> Actor:
    bea = _bearer("bea")(request)
    Token.objects.update(revoked_at=request.created_at)
    return bea


def _stolen(request: Request) -> Actor:
    _person("bea")(request)
    return Actor(person="bea", token=_bearer("cyril")(request).token)


def _joined(request: Request) -> Actor:
    with transaction.atomic():
        Approvals().join(run=request.run_id, person="bea")
    return _person("bea")(request)


@kinds
@pytest.mark.parametrize(
    ("who", "code"),
    [
        (_person("cyril"), "not_found"),
        (_disabled, "not_found"),
        (_revoked, "not_found"),
        (_stolen, "not_found"),
        (_person("ada"), "requester"),
        (_bearer("ada"), "requester"),
        (_person("admin"), "not_eligible"),
        (_bearer("bea", Scope.APPROVALS_DECIDE), "scope"),
        (_joined, "origin"),
    ],
)
def test_a_person_without_the_right_decides_nothing(
    kind: GateKind, who: Refused, code: str
) -> None:
    request = seeds.pending(requester="ada", kind=kind)
    actor = who(request)
    for wrong in (False, True):
        with pytest.raises((NotFound, Forbidden)) as caught:
            decide(request, actor, wrong=wrong)
        assert caught.value.code == code
    assert seeds.untouched(request)
    decide(request, seeds.person("dan", Group.REVIEWERS))
    with pytest.raises((NotFound, Forbidden)):  # rights are refused before races
        decide(request, actor)


def _close(request: Request, actor: Actor | None) -> None:
    with transaction.atomic():
        Approvals().close(run=request.run_id, gates=[request.gate], actor=actor, reason="Enough.")


@kinds
@pytest.mark.parametrize(
    ("end", "error", "extra"),
    [
        (lambda it: decide(it, Actor(person="ada")), AlreadyDecided, {"decided_by": "ada"}),
        (lambda it: _close(it, Actor(person="ada")), Cancelled, {"cancelled_by": "ada"}),
        (lambda it: _close(it, None), Cancelled, {"cancelled_by": None}),
    ],
)
def test_a_late_person_learns_what_came_first(
    ada: Actor,
    bea: Actor,
    kind: GateKind,
    end: Callable[[Request], None],
    error: type[ApprovalError],
    extra: dict[str, Any],
) -> None:
    request = seeds.pending(requester="cyril", kind=kind)
    end(request)
    before = Request.objects.values().get(pk=request.pk)
    for actor in (ada, bea):  # also the one who was first
        for wrong in (False, True):
            with pytest.raises(error) as caught:
                decide(request, actor, wrong=wrong)
            assert caught.value.extra == extra
    assert Request.objects.values().get(pk=request.pk) == before


@kinds
def test_a_gate_that_closed_without_its_request_takes_no_decision(
    bea: Actor, kind: GateKind
) -> None:
    request = seeds.pending(requester="cyril", kind=kind)
    Gate.objects.filter(pk=request.gate).update(state=Gate.State.CLOSED)
    with pytest.raises(AlreadyDecided) as caught:
        decide(request, bea)
    assert caught.value.extra == {"decided_by": None}
