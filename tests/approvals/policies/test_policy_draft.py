"""Rules written as YAML and read back, and a draft of which one rule changes. Pure."""

import pytest

from approvals.rules import policy_sentences, policy_text
from approvals.rules.policy import Escalation, OnExpiry, Policy, Rule, Stage
from tests.approvals.policies.test_sentences import RULES

ODD = Rule(
    name="no",
    tools=frozenset({"on", "1", "- x"}),
    agents=frozenset({"null", "a: b"}),
    when="args.a == 'x: y' ||\n  args.b == \"#\"",
    stages=(Stage(quorum=10, groups=("on",), people=("1.0", "~", "{}", "ä\u2028")), Stage()),
    expires_after=60,
    escalate=(Escalation(seconds=60, people=("!x", "y")),),
    on_expiry=OnExpiry.ANSWER,
    answer={"yes": [None, True, -1.5, "0x1"], "": {"&a": "*a"}},
    step_up=True,
)


def test_written_rules_of_every_kind_read_back_the_same() -> None:
    for policy in (policy_text.parse(RULES), Policy(rules=(ODD,))):
        assert policy_text.parse(policy_sentences.to_yaml(policy)) == policy
    assert policy_sentences.to_yaml(Policy()) == policy_text.DEFAULT


DRAFT = """\
# who decides
rules:
  # the first
  - name: A
    quorum: 2   # two
  - {name: B, when: "args.a > 1"}

  # the last
  - name: C
    people: [bea]
"""


def test_the_rules_that_stay_keep_their_lines() -> None:
    new = Rule(name="N", stages=(Stage(groups=("finance",)),))
    assert policy_sentences.rewrite(DRAFT, [0, 1, 2]) == DRAFT
    assert policy_sentences.rewrite(DRAFT, [2, new, 0]) == (
        "# who decides\nrules:\n  # the last\n  - name: C\n    people: [bea]\n"
        "  - name: N\n    groups:\n    - finance\n"
        "  # the first\n  - name: A\n    quorum: 2   # two\n"
    )


@pytest.mark.parametrize("text", ["rules: [{name: A}, {name: B, quorum: 3}]", "rules: []\n", DRAFT])
def test_rules_that_share_lines_are_written_anew(text: str) -> None:
    old = policy_text.parse(text).rules
    new = Rule(name="N")
    last = [*range(len(old))][-1:]
    assert policy_text.parse(policy_sentences.rewrite(text, [new, *last])).rules == (new, *old[-1:])
    assert policy_sentences.rewrite(text, []) == policy_text.DEFAULT


def test_a_draft_or_a_rule_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(policy_text.PolicyInvalid, match="quorum"):
        policy_sentences.rewrite("rules: [{name: A, quorum: 0}]", [])
    with pytest.raises(policy_text.PolicyInvalid, match="two rules with the name"):
        policy_sentences.rewrite(DRAFT, [0, Rule(name="A")])
