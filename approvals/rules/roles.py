"""The default policy, pure: which calls wait for a person, and which group may decide which risk."""

from collections.abc import Collection, Mapping
from enum import StrEnum
from functools import lru_cache
from typing import Literal

from runtime.core.values.enums import Risk

POLICY_VERSION = "1"


class Group(StrEnum):
    """The groups of people; one person may be in several."""

    REQUESTERS = "requesters"  # start runs
    REVIEWERS = "reviewers"  # decide about other people's runs
    ADMINS = "admins"  # administer and read everything; do not decide


DECIDERS: Mapping[str, frozenset[str]] = {
    Risk.LOW: frozenset({Group.REVIEWERS}),
    Risk.MEDIUM: frozenset({Group.REVIEWERS}),
    Risk.HIGH: frozenset({Group.REVIEWERS}),
}

# The risks of calls whose decisions can be undone for some seconds.
UNDOABLE = frozenset({Risk.LOW, Risk.MEDIUM})

# The groups whose members decide anything at all.
DECIDING = frozenset().union(*DECIDERS.values())

# Rights of a person that are no group of a policy.
_RIGHTS = frozenset({*Group, "password"})


def is_named(right: str) -> bool:
    """Tell whether a right is the membership of a group that exists to be named by rules, such as `finance`.

    It counts in the stages that name the group, together with the right to decide.
    """
    return right not in _RIGHTS


def requires_approval(*, gated: bool, risk: Risk) -> bool:
    """Tell whether a call waits for a person. In this policy that is the tool's own setting, at any risk."""
    return gated


def may_decide(
    *,
    requester: str,
    person: str,
    groups: frozenset[str],
    risk: str,
    origin: Collection[str] = (),
    bound: bool = False,
    cooling: bool = False,
) -> Literal["requester", "origin", "not_eligible", "given_by_origin", "cooling_off"] | None:
    """Say why `person` may not decide; None if they may. No group is exempt from four eyes.

    `origin` names the people in the run's origin, who cannot decide in it. `bound` says that one of them gave this
    person the right, `cooling` that the cooling-off period of the right is not over.
    """
    if person == requester:
        return "requester"
    if person in origin:
        return "origin"
    if risk not in risks_decided_by(groups):
        return "not_eligible"
    if bound:
        return "given_by_origin"
    return "cooling_off" if cooling else None


@lru_cache(256)
def risks_decided_by(groups: frozenset[str]) -> frozenset[str]:
    """Return the risks that a person in `groups` may decide. No group may decide an unknown risk."""
    return frozenset(str(risk) for risk, deciders in DECIDERS.items() if deciders & groups)
