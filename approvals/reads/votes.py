"""Reads the votes on a request that the policy has a rule for, and who could still vote."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.utils import timezone

from approvals.models import Approval, Vote
from approvals.reads import deciders
from approvals.reads.approval_views import ApprovalView
from approvals.rights.principals import Principal
from approvals.rules import policy, tally
from approvals.rules.policy import Stage

MAX_NAMED = 12
NAMED, READ = 3, 10  # people that a request without a rule names, of those whose rights are read


@dataclass(frozen=True, slots=True, kw_only=True)
class StageView:
    """One stage with its votes. `waits` says that it is the one that lacks people now."""

    number: int
    quorum: int
    eligible: str
    votes: tuple[Vote, ...]
    waits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class VotePanel:
    """The votes on a request. `could` names who could vote now, `unnamed` counts those not named.

    With `at_least` there may be more of them. `suffice` is False if the people who are left cannot complete the
    stages: then it will expire. `waits_for` names those of the open stage if the reader is not one of them, and
    `turn_comes` says that a later stage admits the reader.
    """

    rule: str
    version: str
    failed: str
    approved: int
    quorum: int
    stages: tuple[StageView, ...]
    could: tuple[str, ...] = ()
    away: tuple[str, ...] = ()
    unnamed: int = 0
    at_least: bool = False
    suffice: bool = True
    reason: bool = False
    mine: bool = False
    waits_for: str = ""
    turn_comes: bool = False


def could_decide(approval: ApprovalView) -> str:
    """Name the first people who could decide a pending request without a rule, for a reader who may not."""
    has_rule = approval.demands is not None
    if approval.denial is None or not approval.is_pending or approval.tampered or has_rule:
        return ""
    outlook = deciders.outlook_of(approval.stored, limit=READ)
    names, count = ", ".join(outlook.people[:NAMED]), len(outlook.people) - NAMED
    least = "at least " if outlook.is_part else ""
    return f"{names} and {least}{count} more" if count > 0 else names


def too_few(approval: ApprovalView, panel: VotePanel | None) -> tuple[str, ...] | None:
    """Name who is left if too few people can approve a pending request in time; None if they suffice."""
    if panel is not None:
        return None if panel.suffice else panel.could
    pending = approval.status == Approval.Status.PENDING and not approval.tampered
    if not pending or approval.undecidable_at is None:  # the sweeper looks each minute
        return None
    outlook = deciders.outlook_of(Approval.objects.get(pk=approval.id))
    return None if outlook.suffice else outlook.people[:MAX_NAMED]


def panel(approval: ApprovalView) -> VotePanel | None:
    """Return the panel of a request for its reader; None under the default policy, where one person decides."""
    demands = approval.demands
    if demands is None or approval.tampered:
        return None
    rows = Vote.objects.filter(approval=approval.id)
    votes = list(rows.order_by("at", "person"))
    counted = {vote.person: vote.stage for vote in votes}
    pending = approval.is_pending
    stages = policy.stages(demands, approval.opened_until, timezone.now())
    current = tally.current(stages, counted) if pending else None
    outlook = deciders.Outlook(people=(), suffice=True)
    if pending:
        outlook = deciders.outlook_of(approval.stored, counted)
    return VotePanel(
        rule=demands.rule,
        version=approval.policy_version,
        failed=demands.failed,
        approved=len(votes),
        quorum=demands.quorum,
        stages=tuple(
            StageView(
                number=index + 1,
                quorum=stage.quorum,
                eligible=_eligible(stage),
                votes=tuple(vote for vote in votes if vote.stage == index),
                waits=index == current,
            )
            for index, stage in enumerate(stages)
        ),
        could=outlook.people[:MAX_NAMED],
        away=outlook.away[:MAX_NAMED],
        unnamed=max(0, len(outlook.people) - MAX_NAMED),
        at_least=outlook.is_part,
        suffice=outlook.suffice,
        reason=demands.reason,
        mine=pending and approval.reader is not None and approval.reader.person in counted,
        **_turn(stages, current, approval.reader, outlook.people),
    )


def _turn(
    stages: Sequence[Stage], current: int | None, reader: Principal | None, could: Sequence[str]
) -> dict[str, Any]:
    """Say for whom a reader waits who may not approve in the open stage."""
    if current is None or reader is None or _is_in(stages[current], reader):
        return {}
    stage = stages[current]
    members = ", ".join(name for name in could[:MAX_NAMED] if name not in stage.people)
    return {
        "waits_for": f"{_eligible(stage)} ({members})" if members else _eligible(stage),
        "turn_comes": any(_is_in(later, reader) for later in stages[current + 1 :]),
    }


def _is_in(stage: Stage, reader: Principal) -> bool:
    return any(
        stage.admits(principal.person, principal.groups)
        for principal in (reader, *reader.stands_for)
    )


def _eligible(stage: Stage) -> str:
    """Name who may vote in a stage."""
    return ", ".join((*stage.people, *stage.groups)) or "everyone who may decide"
