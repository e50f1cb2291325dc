"""Allowances for the gated call of the onboarding agents, proposed by Bea and confirmed by Cora."""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

from approvals.allowance_acts import changes, uses
from approvals.models import Request
from approvals.policy import Group
from runtime.ports.access import Actor
from tests.support import seeds

BEA, CORA = Actor(person="bea"), Actor(person="cora")
ANY: Mapping[str, Any] = {"rule": "any"}
LIMITS: Mapping[str, Any] = {
    "username": ANY,
    "security_level": {"rule": "at_most", "values": [3]},
}


def reviewers(*names: str) -> None:
    """Make these people, who review."""
    for name in names:
        seeds.person(name, Group.REVIEWERS)


def proposed(request: Request, *, by: Actor = BEA, **changed: Any) -> UUID:
    """Propose an allowance from this request."""
    given = {"limits": LIMITS, "count": 10, "days": 7, **changed}
    return changes.propose(request.id, actor=by, **given)


def in_force(request: Request, **changed: Any) -> UUID:
    """Propose an allowance, and have Cora confirm it."""
    allowance = proposed(request, **changed)
    changes.confirm(allowance, actor=CORA)
    uses.forget()
    return allowance
