"""The table of deciders of each risk."""

from typing import Any

import pytest

from approvals.rules import policy
from approvals.rules.policy import Group
from runtime.core.values.enums import Risk


@pytest.mark.parametrize("risk", Risk)
def test_only_reviewers_decide(risk: Risk) -> None:
    reviewers = frozenset[str]({Group.REVIEWERS})
    for groups in (reviewers, reviewers | {Group.ADMINS}):
        assert policy.may_decide(requester="ada", person="bea", groups=groups, risk=risk) is None
    for group in (*(set(Group) - reviewers), "another-group"):
        groups = frozenset({group})
        answer = policy.may_decide(requester="ada", person="bea", groups=groups, risk=risk)
        assert answer == "not_eligible"


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({}, None),
        ({"requester": "bea"}, "requester"),
        ({"requester": "bea", "groups": frozenset()}, "requester"),
        ({"groups": frozenset(Group), "risk": "harmless"}, "not_eligible"),  # no group decides it
        ({"origin": ("bea",), "bound": True}, "origin"),
        ({"bound": True, "cooling": True}, "given_by_origin"),
        ({"cooling": True}, "cooling_off"),
        ({"origin": ("eve",)}, None),
    ],
)
def test_no_group_lets_the_origin_of_a_run_decide(more: dict[str, Any], answer: str | None) -> None:
    groups = frozenset({"reviewers"})
    known = {"requester": "ada", "person": "bea", "groups": groups, "risk": Risk.LOW}
    assert policy.may_decide(**{**known, **more}) == answer
