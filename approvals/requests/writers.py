"""Says what a reviewer who wrote to the run may still decide, by the rule of each request.

A message steers the run, so its writer could decide on their own wish. Where the rule lets them write, they still
decide the requests that are open when a worker receives the message: the agent's model gets it after those. The sealed
origin of each later request names the writer, who cannot decide it under any rule.
"""

from collections.abc import Collection
from uuid import UUID

from django.db.models import QuerySet

from approvals.models import Approval
from approvals.rules.policy import Demands, demands_of
from runtime.core.run.continuation import merge_people
from runtime.core.values.verdicts import BEFORE_CALL


def may_write(approval: Approval) -> bool:
    """Tell whether the rule lets people who may decide this request write to its run."""
    try:
        demands = demands_of(approval.rule)
    except (ValueError, KeyError, TypeError):
        return False  # the row was tampered with, so no decision on it is signed
    return allowed(approval.kind, demands)


def allowed(kind: str, demands: Demands | None) -> bool:
    """Tell the same by the kind of the request and its demands."""
    return kind in BEFORE_CALL and demands is not None and demands.reviewer_may_write


def barred(
    approval: Approval, origin: Collection[str], reviewers: Collection[str]
) -> Collection[str]:
    """Return the people whose approval does not count: the origin, and where the rule is silent, reviewers who wrote.

    Those who wrote before the request opened are in its own origin.
    """
    return origin if may_write(approval) else merge_people(origin, reviewers)


def still_decided(rows: QuerySet[Approval]) -> list[UUID]:
    """Return those of these requests that a reviewer who writes now may still decide."""
    return [approval.id for approval in rows.only("id", "kind", "rule") if may_write(approval)]
