"""Who can decide by each rule now, and the people without whom a rule could not be met."""

from datetime import timedelta

import pytest

from approvals import clock
from approvals.governance import policies
from approvals.people import absences, accounts
from approvals.reads import deciders as people_who_decide
from approvals.reads import policy_deciders
from approvals.reads.policy_deciders import Deciders
from approvals.rules import policy_text
from runtime.ports.access import Actor
from tests.approvals.policies.office import put_in_force, reviewers
from tests.support import seeds

pytestmark = pytest.mark.django_db

RULES = """
rules:
  - {name: Two, match: {tool: refund}, quorum: 2, people: [bea, cora]}
  - name: Later
    match: {tool: pay}
    people: [bea]
    expires_after: 60
    escalate: [{people: [dan], expires_after: 60}]
  - {name: Level, match: {risk: high}, when: args.level > 2, stages: [{groups: [finance]}, {people: [bea]}]}
"""


@pytest.fixture(autouse=True)
def _people(ada: Actor) -> None:
    reviewers("bea", "cora", "dan")
    accounts.create_group("finance", actor=None)
    accounts.set_groups("dan", ["reviewers", "finance"], actor=None)


def deciders() -> Deciders:
    return Deciders(policy_text.parse(RULES))


def test_a_rule_that_too_few_people_can_meet_now_is_named() -> None:
    assert deciders().find_problems() == {}
    accounts.disable("bea", actor=None)
    assert deciders().find_problems() == {
        "Two": "too few people can meet it now",
        "Later": "too few people can meet it before it escalates",
        "Level": "too few people can meet it now",
    }
    for person in ("ada", "cora", "dan"):
        accounts.disable(person, actor=None)
    assert set(deciders().find_problems()) == {"Two", "Later", "Level", "every other call"}


def test_the_people_without_whom_a_rule_could_not_be_met() -> None:
    assert deciders().needed() == {"bea": ["Two", "Level"], "cora": ["Two"], "dan": ["Level"]}


def test_a_deputy_counts_in_the_place_of_an_absent_person() -> None:
    now = clock.read_time()
    absences.announce(
        deputy="dan",
        starts=now - timedelta(days=1),
        ends=now + timedelta(days=1),
        actor=Actor(person="bea"),
    )
    assert set(deciders().find_problems()) == {"Level"}  # dan votes once
    assert deciders().needed() == {"cora": ["Two"], "dan": ["Two", "Later"]}


def test_of_a_large_group_no_more_people_are_read_than_a_rule_can_need(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(people_who_decide, "READ", 1)
    monkeypatch.setattr(policy_deciders, "MOST", 1)
    assert set(Deciders(policy_text.parse("rules: []")).people) == {"ada", "bea"}
    assert set(deciders().people) == {"ada", "bea", "cora", "dan"}


def test_each_tool_lists_its_rules_up_to_the_one_that_applies_to_each_call() -> None:
    put_in_force("rules: [{name: Bea, match: {tool: set_privileges, risk: high}, people: [bea]}]")
    (tool,) = policy_deciders.list_tool_deciders(policies.read_current())
    assert (tool.tool, tool.risk, tool.agents) == ("set_privileges", "high", ("hr_onboarding",))
    assert [(rule.name, rule.asks, rule.stages[0].people) for rule in tool.rules] == [
        ("Bea", "always", ("bea",))
    ]
    seeds.published("mailer", input_schema={}, tools=[{**seeds.TOOL, "depends": ["risk"]}])
    seeds.published(
        "quiet", input_schema={}, tools=[{**seeds.TOOL, "risk": "low", "approval": False}]
    )
    rows = {row.agents: row for row in policy_deciders.list_tool_deciders(policies.read_current())}
    names = {agents: [rule.name for rule in row.rules] for agents, row in rows.items()}
    assert names == {
        ("hr_onboarding",): ["Bea"],
        ("mailer",): ["Bea", "every other call"],
        ("quiet",): ["every other call"],
    }
    assert rows["mailer",].risk is None
    assert [rule.asks for rule in rows["quiet",].rules] == ["never"]


def test_a_condition_leaves_the_rules_after_it_possible() -> None:
    put_in_force(
        'rules: [{name: A, when: "args.security_level > 2", groups: [finance]}, {name: B, quorum: 2}]'
    )
    (tool,) = policy_deciders.list_tool_deciders(policies.read_current())
    assert [(rule.name, rule.calls, rule.problem) for rule in tool.rules] == [
        ("A", "where security_level is above 2", ""),
        ("B", "", ""),
    ]
    assert tool.rules[0].stages[0].people == ("dan",)
    assert tool.rules[1].stages[0].people == ("ada", "bea", "cora", "dan")
