"""Says which approvals a principal may read and decide, as conditions in SQL and for one approval.

It also says what a reviewer who wrote to the run may still decide. A message steers the run, so its writer could decide
on their own wish. Where the rule lets them write, they still decide the approvals that are open when a worker receives
the message: the agent's model gets it after those. The sealed origin of each later approval names the writer, who
cannot decide it under any rule.
"""

from collections.abc import Collection
from datetime import UTC, datetime
from functools import reduce
from operator import or_
from uuid import UUID

from django.db.models import BooleanField, F, Func, Q, QuerySet

from approvals import clock
from approvals.models import Approval
from approvals.rights.principals import Principal, Scope
from approvals.rules import policy
from approvals.signed import rows as signed_rows
from runtime.core.run.continuation import merge_people
from runtime.core.values.enums import Risk
from runtime.core.values.verdicts import BEFORE_CALL
from runtime.errors import Forbidden

_RISKS = frozenset(Risk)
# The condition of the index `approval_excluded_others`: `excluded` has more than the requester, as few requests have.
_EXCLUDES_OTHERS = Q(
    Func(F("excluded"), template="(%(expressions)s -> 1) IS NOT NULL", output_field=BooleanField())
) | Q(
    Func(
        F("excluded"),
        F("requester"),
        arg_joiner=" ->> 0) <> ",
        template="(%(expressions)s",
        output_field=BooleanField(),
    )
)


def match_readable_requests(principal: Principal | None) -> Q:
    """Return the condition on Request that holds for exactly those this principal may read."""
    if principal is None:
        return Q(pk__in=[])
    if principal.has(Scope.ADMIN):
        return Q()
    return Q(requester=principal.person) | match_for_decider(principal)


def match_for_decider(principal: Principal) -> Q:
    """Return the condition for requests that this principal, or an absent person behind them, may decide.

    It goes by risk and by the request's rule, also by a later step of its escalation, and includes those who decided
    or voted. It leaves out who the requester is: a person whom four eyes stop may read.
    """
    eligible = Q(readers__isnull=True) | Q(readers__has_any_keys=_list_keys(principal))
    eligible |= Q(decided_by=principal.person) | Q(voted__contains=[principal.person])
    for absent in principal.stands_for:
        eligible |= Q(readers__has_any_keys=_list_keys(absent)) & match_decided_risk(absent)
    return match_decided_risk(principal) & eligible


def may_read_request(principal: Principal | None, approval: Approval) -> bool:
    """Tell whether this principal may read the request."""
    if principal is None:
        return False
    return (
        principal.has(Scope.ADMIN)
        or approval.requester == principal.person
        or _may_review(principal, approval)
    )


def _may_review(principal: Principal, approval: Approval) -> bool:
    """Tell what `match_for_decider` tells in SQL."""
    return _may_decide_risk(principal, approval) and (
        approval.readers is None
        or principal.person in (approval.decided_by, *signed_rows.select_texts(approval.voted))
        or _is_named(principal, approval)
        or any(
            _is_named(absent, approval) and _may_decide_risk(absent, approval)
            for absent in principal.stands_for
        )
    )


def may_see_held(principal: Principal | None, approval: Approval) -> bool:
    """Tell whether this reader is a reviewer for whom a held text is not meant, and may read it before its release.

    A right that does not count yet is none: an admin could give it to an account of their own.
    """
    if principal is None or principal.cooling_until:
        return False
    people = {
        approval.requester,
        *signed_rows.select_texts(approval.origin),
        *signed_rows.select_texts(approval.excluded),
    }
    bound = any(bond.is_bound(people) for bond in principal.bonds)
    if bound or not people.isdisjoint({principal.person, *principal.can_be}):
        return False
    return approval.risk in policy.list_decidable_risks(principal.groups) and _may_review(
        principal, approval
    )


def match_decidable_requests(principal: Principal | None) -> Q:
    """Return the condition on Request that holds for exactly those this principal may decide."""
    if (
        principal is None
        or Scope.APPROVALS_DECIDE not in principal.scopes
        or principal.cooling_until
    ):
        return Q(pk__in=[])
    return (
        match_for_decider(principal) & ~_match_barred(principal) & ~_match_waiting_others(principal)
    )


def match_undecidable_requests(principal: Principal | None) -> Q:
    """Return the condition for readable pending requests that this principal may not decide.

    It is no negation of `match_decidable_requests`, so that an index finds their own requests among a million.
    It repeats that these are pending: then Postgres knows that they are few beside closed ones.
    """
    if (
        principal is None
        or Scope.APPROVALS_DECIDE not in principal.scopes
        or principal.cooling_until
    ):
        return Q()
    undecidable = _match_barred(principal, status=Approval.Status.PENDING) | _match_waiting_others(
        principal
    )
    if not principal.has(Scope.ADMIN):
        return undecidable
    return undecidable | ~match_decided_risk(principal)


def match_decided_risk(principal: Principal) -> Q:
    """Return the condition for requests of a risk that this principal may decide.

    For every reviewer it includes requests with an unknown risk: such a row was tampered with, and a reviewer must see
    it. A decision on it is refused.
    """
    decided = policy.list_decidable_risks(principal.groups)
    if not decided:
        return Q(pk__in=[])
    return ~Q(risk__in=_RISKS - decided)


def find_denial(
    principal: Principal | None,
    approval: Approval,
    origin: Collection[str] = (),
    at: datetime | None = None,
) -> Forbidden | None:
    """Say why a reader of a request may not decide it; None if they may.

    `origin` names people whom the row may lack: see Approvals.verify_approval. The rule names those who may decide
    at the time `at`, by default now.
    """
    if principal is None:
        return Forbidden("not_eligible", "This person may not act.")
    if Scope.APPROVALS_DECIDE not in principal.scopes:
        return Forbidden("scope", f"This token does not have the scope {Scope.APPROVALS_DECIDE}.")
    people = {
        *signed_rows.select_texts(approval.origin),
        *signed_rows.select_texts(approval.excluded),
        *origin,
    }
    code = policy.may_decide(
        requester=approval.requester,
        origin=people,
        person=principal.person,
        groups=principal.groups,
        risk=approval.risk,
        bound=any(bond.is_bound({approval.requester, *people}) for bond in principal.bonds),
        cooling=principal.cooling_until is not None,
    )
    match code:
        case None if names := principal.can_be & {approval.requester, *people}:
            return Forbidden(
                "origin",
                f"{principal.person} set the password of {', '.join(sorted(names))}, who is in this run's origin, so"
                " another person must decide.",
            )
        case None:
            refused = _not_named(principal, approval, at)
            return None if refused and stand_in(principal, approval, origin, at) else refused
        case "requester":
            return Forbidden(
                code, f"{principal.person} started this run, so another person must decide."
            )
        case "origin":
            return Forbidden(
                code,
                f"{principal.person} is in this run's origin, so another person must decide: they started the run it"
                " was made from, tried it again, or sent it a message or an event.",
            )
        case "not_eligible":
            return Forbidden(
                code, f"{principal.person} may not decide on actions of {approval.risk} risk."
            )
        case "given_by_origin":
            return Forbidden(code, _explain_bond(principal, {approval.requester, *people}))
        case "cooling_off":
            assert principal.cooling_until is not None
            return Forbidden(
                code,
                f"An admin gave {principal.person} the right to decide only recently: it counts from"
                f" {principal.cooling_until.astimezone(UTC):%Y-%m-%d %H:%M} UTC, or once a second admin confirms it on"
                " the page People.",
            )


def name_dependent(principal: Principal, voters: Collection[str]) -> frozenset[str]:
    """Name the voters who may be this person under another name: one gave the other the right or the password."""
    givers = {giver for bond in principal.bonds if bond.is_bound(voters) for giver in bond.givers}
    return frozenset(voters) & {*givers, *principal.can_be}


def stand_in(
    principal: Principal | None,
    approval: Approval,
    origin: Collection[str] = (),
    at: datetime | None = None,
) -> tuple[Principal, ...]:
    """Return the absent people in whose place the principal may decide, because they may themselves.

    So neither the deputy nor the absent person can be in the run's origin.
    """
    absentees = () if principal is None else principal.stands_for
    return tuple(
        absent for absent in absentees if find_denial(absent, approval, origin, at) is None
    )


def find_absentee(principal: Principal | None, approval: Approval, at: datetime) -> str | None:
    """Name the absent person in whose place the principal decides; None if they decide for themselves, or not.

    Of several it is the first without a vote.
    """
    if principal is None or not principal.stands_for:
        return None
    if _not_named(principal, approval, at) is None:
        return None
    names = [absent.person for absent in stand_in(principal, approval, at=at)]
    voted = {*(approval.voted or ()), *(approval.voted_for or ())}
    return next((name for name in names if name not in voted), names[0] if names else None)


def find_denial_for(
    principal: Principal | None,
    approval: Approval,
    absent: str | None,
    origin: Collection[str],
    at: datetime,
) -> Forbidden | None:
    """Say why the principal may not decide in the place of `absent`, None for themselves; None if they may."""
    refused = find_denial(principal, approval, origin, at)
    if refused is not None or principal is None:
        return refused
    if absent is None:
        return _not_named(principal, approval, at)
    if absent in {absentee.person for absentee in stand_in(principal, approval, origin, at)}:
        return None
    return Forbidden(
        "not_eligible", f"{principal.person} may not decide this request in the place of {absent}."
    )


def _not_named(principal: Principal, approval: Approval, at: datetime | None) -> Forbidden | None:
    """Say that the request's rule names other people; None if it names this person, for any of its stages.

    All reviewers may resolve a call in doubt: it has no deadline. Only the people of the rule can let it run again.
    """
    if approval.is_in_doubt:
        return None
    try:
        demands = policy.decode_demands(approval.rule)
    except (ValueError, KeyError, TypeError):
        return None  # the row was tampered with, so no decision on it is signed
    if demands is None or any(
        stage.is_eligible(principal.person, principal.groups)
        for stage in policy.compute_stages(demands, approval.opened_until, at or clock.read_time())
    ):
        return None
    return Forbidden(
        "not_eligible",
        f"The policy's rule {demands.rule} lets only other people decide this request.",
    )


def _may_decide_risk(principal: Principal, approval: Approval) -> bool:
    """Tell what `match_decided_risk` tells in SQL."""
    decided = policy.list_decidable_risks(principal.groups)
    return bool(decided) and approval.risk not in _RISKS - decided


def _is_named(principal: Principal, approval: Approval) -> bool:
    return not set(_list_keys(principal)).isdisjoint(signed_rows.select_texts(approval.readers))


def _list_keys(principal: Principal) -> list[str]:
    return list(policy.list_keys(principal.person, principal.groups))


def _match_waiting_others(principal: Principal) -> Q:
    """Build the condition on requests that now wait for the votes of other people."""
    mine = Q(open_to__has_any_keys=_list_keys(principal))
    for absent in principal.stands_for:
        if not absent.cooling_until:
            theirs = Q(open_to__has_any_keys=_list_keys(absent))
            mine |= (
                theirs
                & match_decided_risk(absent)
                & ~_match_barred(absent)
                & ~_has_vote(absent.person)
            )
    voted = _has_vote(principal.person)
    return Q(open_to__isnull=False) & (~mine | voted)


def _has_vote(person: str) -> Q:
    """Build the condition on requests that this person, or a deputy in their place, has approved."""
    return Q(voted__contains=[person]) | Q(voted_for__contains=[person])


def _match_barred(principal: Principal, **also: str) -> Q:
    """Build the condition on requests in whose origin is this person, a giver of their right, or whom they `can_be`.

    `also` is the value of another column, where a requester is compared.
    """
    barred = _match_origin(principal.person, **also)
    if principal.can_be:
        names = sorted(principal.can_be)
        barred |= Q(requester__in=names, **also) | (
            _EXCLUDES_OTHERS & Q(excluded__has_any_keys=names)
        )
    for bond in principal.bonds:
        theirs = reduce(or_, (_match_origin(giver, **also) for giver in sorted(bond.givers)))
        barred |= theirs if bond.second is None else theirs & _match_origin(bond.second, **also)
    return barred


def _match_origin(person: str, **also: str) -> Q:
    return Q(requester=person, **also) | (_EXCLUDES_OTHERS & Q(excluded__contains=[person]))


def _explain_bond(principal: Principal, people: Collection[str]) -> str:
    givers = sorted(
        {
            giver
            for bond in principal.bonds
            if bond.is_bound(people)
            for giver in bond.givers & set(people)
        }
    )
    return (
        f"{principal.person} got the right to decide from {', '.join(givers)}, who is in this run's origin: the right"
        " does not count here until a second admin confirms it on the page People."
    )


def may_write(approval: Approval) -> bool:
    """Tell whether the rule lets people who may decide this request write to its run."""
    try:
        demands = policy.decode_demands(approval.rule)
    except (ValueError, KeyError, TypeError):
        return False  # the row was tampered with, so no decision on it is signed
    return may_write_by_rule(approval.kind, demands)


def may_write_by_rule(kind: str, demands: policy.Demands | None) -> bool:
    """Tell the same by the kind of the request and its demands."""
    return kind in BEFORE_CALL and demands is not None and demands.reviewer_may_write


def list_barred(
    approval: Approval, origin: Collection[str], reviewers: Collection[str]
) -> Collection[str]:
    """Return the people whose approval does not count: the origin, and where the rule is silent, reviewers who wrote.

    Those who wrote before the request opened are in its own origin.
    """
    return origin if may_write(approval) else merge_people(origin, reviewers)


def list_still_decidable(rows: QuerySet[Approval]) -> list[UUID]:
    """Return those of these requests that a reviewer who writes now may still decide."""
    return [approval.id for approval in rows.only("id", "kind", "rule") if may_write(approval)]
