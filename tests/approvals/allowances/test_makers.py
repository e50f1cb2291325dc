"""Two people make an allowance, neither of them in the origin of the run it comes from; one of them revokes it."""

from datetime import timedelta
from functools import partial
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from approvals import clock
from approvals.errors import AllowanceRefused, NotFound, UnknownAllowance
from approvals.governance import allowance_changes, allowances
from approvals.models import AllowanceAct, Approval
from approvals.people import absences, accounts, tokens
from approvals.rules.policy import Group
from runtime.core.values.enums import GateKind, Risk
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor
from tests.approvals.allowances.office import ANY, BEA, CORA, LIMITS, proposed, reviewers
from tests.approvals.policies.office import asked
from tests.support import seeds

pytestmark = pytest.mark.django_db


@pytest.fixture
def request_(ada: Actor, bea: Actor, cyril: Actor, admin: Actor) -> Approval:
    reviewers("cora", "dan")
    return seeds.pending(risk=Risk.MEDIUM)


def test_two_people_make_one_and_a_third_revokes_it(request_: Approval) -> None:
    allowance = proposed(request_)
    with pytest.raises(AllowanceRefused, match="Another person must confirm"):
        allowance_changes.confirm(allowance, actor=BEA)
    allowance_changes.confirm(allowance, actor=CORA)
    found = allowances.read_allowance(allowance)
    assert found is not None
    assert (found.makers, found.used, found.left) == (("bea", "cora"), 0, 10)
    with pytest.raises(AllowanceRefused, match="it is in force"):
        allowance_changes.confirm(allowance, actor=Actor(person="dan"))
    allowance_changes.revoke(allowance, actor=Actor(person="dan"), reason="Enough.")
    for again in (allowance_changes.revoke, allowance_changes.confirm):
        with pytest.raises(AllowanceRefused, match=r"was revoked before|it is revoked"):
            again(allowance, actor=CORA)
    found = allowances.read_allowance(allowance)
    assert found is not None
    assert (found.revoked_by, found.reason) == ("dan", "Enough.")


@pytest.mark.parametrize("who", ["ada", "cyril", "admin"])
def test_who_may_not_decide_makes_none(who: str, request_: Approval) -> None:
    """Ada started the run: she reviews other people's."""
    allowance, actor = proposed(request_), Actor(person=who)
    refused = NotFound if who == "cyril" else Forbidden
    with pytest.raises(refused):
        proposed(request_, by=actor)
    with pytest.raises((UnknownAllowance, NotFound, Forbidden)):
        allowance_changes.confirm(allowance, actor=actor)


def test_a_right_that_comes_from_the_proposer_does_not_confirm(request_: Approval) -> None:
    """Fay administers and reviews, and gave Eva her right: together they are one person."""
    seeds.person("fay", Group.ADMINS, Group.REVIEWERS)
    seeds.person("eva")
    accounts.set_groups("eva", [Group.REVIEWERS], actor="fay")
    allowance = proposed(request_, by=Actor(person="fay"))
    with pytest.raises((AllowanceRefused, Forbidden)):
        allowance_changes.confirm(allowance, actor=Actor(person="eva"))


def test_a_proposer_who_lost_the_right_is_not_confirmed(request_: Approval) -> None:
    allowance = proposed(request_)
    User.objects.filter(username="bea").update(is_active=False)
    with pytest.raises(Forbidden):
        allowance_changes.confirm(allowance, actor=CORA)


def test_a_deputy_makes_none_in_the_place_of_another(request_: Approval) -> None:
    """Else Cora and Bea would be one right: Cora by that of Bea, and Bea."""
    named = asked("rules: [{name: Bea and dan, people: [bea, dan]}]", risk=Risk.MEDIUM)
    allowance = proposed(named)
    now = clock.read_time()
    absences.announce(deputy="cora", starts=now, ends=now + timedelta(days=1), actor=BEA)
    for act in (
        partial(proposed, named, by=CORA),
        partial(allowance_changes.confirm, allowance, actor=CORA),
    ):
        with pytest.raises(Forbidden, match="lets only other people decide"):
            act()
    assert allowance_changes.read_source(named.id, actor=CORA)[1] is not None
    assert not allowance_changes.read_with_uses(allowance, CORA)[0].may_confirm
    allowance_changes.confirm(allowance, actor=Actor(person="dan"))


def test_a_token_needs_the_scope(request_: Approval) -> None:
    token, _ = tokens.create(User.objects.get(username="bea"), ["approvals:read"])
    with pytest.raises(Forbidden, match="scope"):
        proposed(request_, by=Actor(person="bea", token=token.public_id))


@pytest.mark.parametrize("who", ["cyril", "ada"])
def test_who_decides_nothing_of_its_risk_revokes_none(who: str, request_: Approval) -> None:
    allowance = proposed(request_)
    if who == "cyril":
        with pytest.raises(UnknownAllowance):
            allowance_changes.revoke(allowance, actor=Actor(person=who))
    else:  # she reviews, so she may stop it, although not in her own run
        allowance_changes.revoke(allowance, actor=Actor(person=who))
    with pytest.raises(UnknownAllowance):
        allowance_changes.revoke(uuid4(), actor=CORA)


@pytest.mark.parametrize(
    ("given", "said"),
    [({"risk": Risk.HIGH}, "high risk"), ({"kind": GateKind.HOLD}, "waits for an approval")],
)
def test_a_request_without_a_place_for_one(
    given: dict[str, Any], said: str, request_: Approval
) -> None:
    with pytest.raises(AllowanceRefused, match=said):
        proposed(seeds.pending(**{"risk": Risk.LOW, **given}))


def test_a_rule_that_demands_more_leaves_no_place(request_: Approval) -> None:
    with pytest.raises(AllowanceRefused, match="demands more"):
        proposed(asked(risk=Risk.LOW))
    assert not AllowanceAct.objects.exists()


def test_a_changed_request_leaves_no_place(request_: Approval) -> None:
    Approval.objects.filter(pk=request_.pk).update(args='{"username":"root","security_level":5}')
    with pytest.raises(AllowanceRefused, match="differs"):
        proposed(request_)


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"count": 0}, "count"),
        ({"count": 1001}, "count"),
        ({"count": True}, "count"),
        ({"count": "many"}, "count"),
        ({"days": 31}, "days"),
        ({"days": None}, "days"),
        ({"limits": None}, "limits"),
        ({"limits": {}}, "limits.username"),
        ({"limits": {**LIMITS, "more": ANY}}, "limits"),
        ({"limits": {**LIMITS, "username": {"rule": "like"}}}, "limits.username"),
        ({"limits": {**LIMITS, "username": {"rule": "equals"}}}, "limits.username"),
        ({"limits": {**LIMITS, "username": {"rule": "any", "values": "x"}}}, "limits.username"),
        (
            {"limits": {**LIMITS, "username": {"rule": "equals", "values": ["x" * 20_000]}}},
            "limits",
        ),
        ({"limits": {**LIMITS, "username": {"rule": "equals", "values": ["\ud800"]}}}, "limits"),
    ],
)
def test_wrong_terms_name_their_field(given: Any, field: str, request_: Approval) -> None:
    with pytest.raises(InvalidInput) as refused:
        proposed(request_, **given)
    assert refused.value.field == field


def test_a_call_with_too_many_arguments_has_none(request_: Approval) -> None:
    many = {f"a{n}": n for n in range(51)}
    call = seeds.pending(risk=Risk.MEDIUM, args=many)
    with pytest.raises(InvalidInput, match="at most 50"):
        proposed(call, limits=dict.fromkeys(many, ANY))
