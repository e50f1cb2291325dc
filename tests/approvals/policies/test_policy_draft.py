"""Rules written as YAML and read back, and a draft of which one rule changes. Pure."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.rules import policy_sentences, policy_text
from approvals.rules.policy import Escalation, OnExpiry, Policy, Rule, Stage
from runtime.core.values.enums import Risk
from tests.approvals.policies.test_sentences import RULES

NAMES = st.text(min_size=1, max_size=20).filter(
    lambda text: bool(text.strip()) and text.isprintable()
)
GROUPS = st.sampled_from(["reviewers", "finance", "on", "1"])
SECONDS = st.integers(60, 2_592_000)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.floats(allow_nan=False, allow_infinity=False)
    | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=5,
)
STAGES = st.builds(
    Stage,
    quorum=st.integers(1, 10),
    groups=st.lists(GROUPS, max_size=2).map(tuple),
    people=st.lists(NAMES, max_size=2).map(tuple),
)


@st.composite
def rules(draw: Any, name: str) -> Rule:
    stages = tuple(draw(st.lists(STAGES, min_size=1, max_size=3)))
    narrow = any(stage.groups or stage.people for stage in stages)
    narrow = narrow and not all({"group:reviewers"} <= set(stage.keys) for stage in stages)
    step = st.builds(
        Escalation, seconds=SECONDS, people=st.lists(NAMES, min_size=1, max_size=2).map(tuple)
    )
    tools = frozenset(draw(st.lists(NAMES, max_size=2)))
    ending = draw(st.sampled_from([*OnExpiry] if tools else [OnExpiry.DENY, OnExpiry.FAIL]))
    return Rule(
        name=name,
        tools=tools,
        agents=frozenset(draw(st.lists(NAMES, max_size=2))),
        risks=frozenset(draw(st.lists(st.sampled_from(["low", "medium", "high"])))),
        when=draw(st.sampled_from(["", "args.a > 1", "args.a == 'x: y' ||\n  args.b == \"#\""])),
        approval=draw(st.booleans()),
        risk=draw(st.none() | st.sampled_from(Risk)),
        stages=stages,
        reason=draw(st.booleans()),
        expires_after=draw(st.none() | SECONDS),
        undo=draw(st.none() | st.integers(0, 300)),
        escalate=tuple(draw(st.lists(step, max_size=2))) if narrow else (),
        on_expiry=ending,
        answer=json.loads(json.dumps(draw(JSON))) if ending is OnExpiry.ANSWER else None,
        reviewer_may_write=draw(st.booleans()),
        step_up=draw(st.booleans()),
    )


@given(policy=st.tuples(rules("One"), rules("no")).map(lambda both: Policy(rules=both)))
def test_a_written_policy_reads_back_the_same(policy: Policy) -> None:
    assert policy_text.parse(policy_sentences.to_yaml(policy)) == policy


def test_written_rules_of_every_kind_read_back_the_same() -> None:
    policy = policy_text.parse(RULES)
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
