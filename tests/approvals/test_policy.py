"""The table of deciders of each risk."""

from typing import Any

import pytest

from approvals import policy
from approvals.policy import Group
from runtime.core.enums import Risk


@pytest.mark.parametrize("risk", Risk)
@pytest.mark.parametrize(
    ("groups", "answer"),
    [
        ([Group.REVIEWERS], None),
        ([Group.REVIEWERS, Group.ADMINS], None),
        ([Group.ADMINS], "not_eligible"),
        ([Group.REQUESTERS], "not_eligible"),
        (["another-group"], "not_eligible"),
        ([], "not_eligible"),
    ],
)
def test_only_reviewers_decide(risk: Risk, groups: list[str], answer: str | None) -> None:
    assert policy.may_decide(requester="ada", person="bea", groups=groups, risk=risk) == answer


@pytest.mark.parametrize(
    ("person", "groups", "risk", "answer"),
    [
        ("ada", [], Risk.LOW, "requester"),
        ("ada", [Group.REVIEWERS], Risk.LOW, "requester"),
        ("ada", list(Group), Risk.LOW, "requester"),
        ("bea", list(Group), "harmless", "not_eligible"),  # an unknown risk has no deciders
    ],
)
def test_no_group_lets_a_requester_decide(
    person: str, groups: list[str], risk: str, answer: str
) -> None:
    given = policy.may_decide(requester="ada", person=person, groups=groups, risk=risk)
    assert given == answer


@pytest.mark.parametrize(
    ("more", "answer"),
    [
        ({"origin": ("bea",), "bound": True}, "origin"),
        ({"bound": True, "cooling": True}, "given_by_origin"),
        ({"cooling": True}, "cooling_off"),
        ({"origin": ("eve",)}, None),
    ],
)
def test_a_reviewer_near_the_origin_of_a_run_does_not_decide(
    more: dict[str, Any], answer: str | None
) -> None:
    known = {"requester": "ada", "person": "bea", "groups": ["reviewers"], "risk": Risk.LOW}
    assert policy.may_decide(**known, **more) == answer  # type: ignore[arg-type]


def test_every_risk_has_deciding_groups() -> None:
    assert set(policy.DECIDERS) == set(Risk)
    assert all(policy.DECIDERS.values())


@pytest.mark.parametrize("risk", Risk)
def test_a_gated_tool_always_waits_and_another_never(risk: Risk) -> None:
    assert policy.requires_approval(gated=True, risk=risk)
    assert not policy.requires_approval(gated=False, risk=risk)


def test_requests_name_the_policy_they_were_made_under() -> None:
    assert policy.POLICY_VERSION == "1"
