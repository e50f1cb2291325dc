"""Allowances for the gated call of the onboarding agents, proposed by Bea and confirmed by Cora."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from approvals.governance import allowance_changes, allowance_uses
from approvals.models import Approval
from approvals.rules.policy import Group
from runtime.ports.access import Actor
from tests.support import seeds

BEA, CORA = Actor(person="bea"), Actor(person="cora")
ANY: Mapping[str, Any] = {"rule": "any"}
LIMITS: Mapping[str, Any] = {"username": ANY, "security_level": {"rule": "at_most", "values": [3]}}


def reviewers(*names: str) -> None:
    """Make these people, who review."""
    for name in names:
        seeds.person(name, Group.REVIEWERS)


def proposed(approval: Approval, *, by: Actor = BEA, **changed: Any) -> UUID:
    """Propose an allowance from this request."""
    given = {"limits": LIMITS, "count": 10, "days": 7, **changed}
    return allowance_changes.propose(approval.id, actor=by, **given)


def in_force(approval: Approval, **changed: Any) -> UUID:
    """Propose an allowance, and have Cora confirm it."""
    allowance = proposed(approval, **changed)
    allowance_changes.confirm(allowance, actor=CORA)
    allowance_uses.forget()
    return allowance
