"""A policy in force, and requests under it."""

from typing import Any

from agents.models import PublishedAgent
from approvals.governance import policies
from approvals.models import Approval
from approvals.rules.policy import Group
from runtime.ports.access import Actor
from tests.support import seeds

ARGUMENTS = seeds.object_of(username={"type": "string"}, security_level={"type": "integer"})
TWO = "rules: [{name: Two, quorum: 2}]"


def put_in_force(text: str) -> int:
    """Propose and confirm a version, as the command line does."""
    if not PublishedAgent.objects.filter(name="hr_onboarding").exists():
        seeds.published(input_schema={}, tools=[{**seeds.TOOL, "schema": ARGUMENTS}])
    number = policies.propose(text, actor=None)
    policies.confirm(number, actor=None)
    policies.forget()
    return number


def reviewers(*names: str) -> list[Actor]:
    """Make these people, who review."""
    return [seeds.person(name, Group.REVIEWERS) for name in names]


def asked(text: str = TWO, **given: Any) -> Approval:
    """Return a pending request, made under this policy."""
    put_in_force(text)
    return seeds.pending(**given)
