"""A policy: its ruling on a call, its text, its draft and its sentences."""

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from approvals.rules import judge, policy_sentences, policy_text, tally
from approvals.rules.judge import Facts, Judgement
from approvals.rules.policy import (
    Demands,
    Escalation,
    OnExpiry,
    Policy,
    Rule,
    Stage,
    decode_demands,
)
from approvals.rules.policy_text import SETTINGS
from runtime.core.values import expressions
from runtime.core.values.enums import Risk
from runtime.core.values.expressions import ExpressionError

REVIEWERS = ("reviewers",)


def judged(of: str, **facts: Any) -> Judgement:
    values: dict[str, Any] = {
        "tool": "refund",
        "path": ("shop", "refund"),
        "args": {"amount": 100, "items": [{"price": 5}]},
        "risk": Risk.LOW,
        "gated": False,
        "effect": "write",
        "requester": "ada",
    }
    return judge.judge(policy_text.parse(of), Facts(**{**values, **facts}))


def rules(*lines: str) -> str:
    return "rules:\n" + "\n".join(f"  - {{name: Rule {n}, {line}}}" for n, line in enumerate(lines))


DEFAULT = Judgement(approval=False, risk=Risk.LOW)

# Each setting of the registry, as the rule without it and with it, and what differs for the same call.
FLIPS: dict[str, tuple[str, str, Any]] = {
    "match.tool": ("approval: required", "match: {tool: other}, approval: required", "approval"),
    "match.agent": ("approval: required", "match: {agent: other}, approval: required", "approval"),
    "match.risk": ("approval: required", "match: {risk: high}, approval: required", "approval"),
    "when": ("approval: required", "when: args.amount > 500, approval: required", "approval"),
    "approval": ("reason: required", "reason: required, approval: required", "approval"),
    "risk": ("reason: required", "reason: required, risk: high", "risk"),
    "quorum": ("reason: required", "reason: required, quorum: 2", "demands"),
    "groups": ("people: [bea]", "people: [bea], groups: [reviewers]", "demands"),
    "people": ("groups: [reviewers]", "groups: [reviewers], people: [bea]", "demands"),
    "stages": ("quorum: 1", "stages: [{quorum: 1}, {quorum: 1}]", "demands"),
    "reason": ("quorum: 2", "quorum: 2, reason: required", "demands"),
    "step_up": ("quorum: 2", "quorum: 2, step_up: required", "demands"),
    "expires_after": ("quorum: 2", "quorum: 2, expires_after: 60", "expires_after"),
    "undo": ("quorum: 2", "quorum: 2, undo: 60", "demands"),
    "reviewer_may_write": ("quorum: 2", "quorum: 2, reviewer_may_write: true", "demands"),
    "escalate": (
        "people: [bea]",
        "people: [bea], escalate: [{people: [bo], expires_after: 60}]",
        "extends_by",
    ),
    "on_expiry": ("quorum: 2", "quorum: 2, on_expiry: fail", "demands"),
}


def test_every_setting_has_a_test_that_flips_it() -> None:
    assert set(FLIPS) == set(SETTINGS)


@pytest.mark.parametrize("setting", FLIPS)
def test_a_setting_makes_the_difference_it_says(setting: str) -> None:
    without, with_it, what = FLIPS[setting]
    before, after = judged(rules(without)), judged(rules(with_it))
    assert getattr(before, what) != getattr(after, what)


def test_the_first_rule_that_matches_applies_and_none_is_the_default() -> None:
    two = rules("match: {risk: high}, quorum: 3", "quorum: 2", "quorum: 4")
    found = judged(two).demands
    assert found is not None
    assert (found.rule, found.quorum) == ("Rule 1", 2)
    assert judged(rules("match: {tool: [a, b]}, quorum: 2")) == DEFAULT
    assert judged(policy_text.DEFAULT) == DEFAULT
    assert judged(policy_text.DEFAULT, gated=True).approval


def test_a_policy_is_never_less_strict_than_the_tool() -> None:
    found = judged(rules("risk: low"), risk=Risk.HIGH, gated=True)
    assert (found.risk, found.approval) == (Risk.HIGH, True)


def test_a_condition_that_fails_counts_as_the_strictest_rule() -> None:
    found = judged(
        rules("when: args.nope > 1, quorum: 2", "match: {tool: x}, quorum: 3, reason: required")
    )
    assert (found.approval, found.risk) == (True, Risk.HIGH)
    assert found.demands is not None
    assert (found.demands.quorum, found.demands.reason) == (3, True)
    assert "the condition of Rule 0 failed: there is no nope" in found.demands.failed
    assert decode_demands(found.demands.stored()) == found.demands


ITEMS = "args.items"
REFUSED = {
    "args.amount > 1" + " " * 2_000: "2000 are allowed",
    f"{ITEMS}.all(x, {ITEMS}.exists(y, y == x))": "2 quantifiers",
    f"{ITEMS} . all (x, true) && {ITEMS}\n.existsOne(y, true)": "2 quantifiers",
    f"{ITEMS}.map(x, x) == []": "must not use map",
    f"{ITEMS}.exists(x, {ITEMS} == [x])": "not args, inside",
    "args.s.matches('(a+)+$')": "calls matches",
    "timestamp('2030-01-01T00:00:00Z') == 1": "calls timestamp",
    "secret > 1": "names secret",
    "args.amount >": "is not valid CEL",
    "'\\'' == args.s": "must not contain",
    "args.s" + " + args.s" * 6 + " == ''": "signs +",
}


@pytest.mark.parametrize("condition", REFUSED)
def test_a_condition_out_of_bounds_is_refused(condition: str) -> None:
    with pytest.raises(ExpressionError, match=REFUSED[condition].replace("+", r"\+")):
        judge.check_condition(condition)


HOLDS = {
    "args.amount >= 99.5": True,
    "has(args.note)": False,
    "args.items.exists(x, x.price > 4) && tool in ['refund']": True,
    "'a.exists(x, ' == tool": False,
    "agent == 'shop' && requester != 'bea' && risk == 'low' && path[0] == 'shop'": True,
}


@pytest.mark.parametrize("condition", HOLDS)
def test_a_condition_reads_facts_and_arguments(condition: str) -> None:
    found = judged(rules(f'when: "{condition}", quorum: 2'))
    assert (found.demands is not None) is HOLDS[condition]


def test_a_list_over_the_bound_and_a_value_that_is_no_truth_count_as_errors() -> None:
    many = {"items": [{"price": 1}] * (expressions.MAX_LIST + 1)}
    for found in (
        judged(rules("when: 'args.items.all(x, true)'"), args=many),
        judged(rules("when: args.amount")),
        judged(
            rules("when: '1'")
        ),  # of a version that was saved before such a condition was refused
    ):
        assert found.demands is not None
        assert found.demands.failed


WRONG = {
    "": "line 1, rules: is required",
    "rules:\n  - {quorum: 1}": r"line 2, rules\[1\]: must have a name",
    "rules:\n  - name: A\n    quorm: 2": r"line 3, rules\[1\].quorm: is unknown",
    "rules:\n  - name: A\n    quorum: 0": r"line 3, rules\[1\].quorum: must be a whole number from 1",
    "rules:\n  - name: A\n    quorum: yes": "must be a whole number",
    "rules:\n  - name: A\n    name: B": r"line 3, rules\[1\].name: is given twice",
    "rules:\n  - {name: A}\n  - {name: A}": "two rules with the name A",
    "rules:\n  - name: A\n    groups: [admins]": "admins is not a group whose members may decide",
    "rules:\n  - name: A\n    quorum: 2\n    stages: [{}]": "must be set in each stage",
    "rules:\n  - name: A\n    stages: []": "at least one stage",
    "rules:\n  - name: A\n    match: {risk: huge}": "must be low or medium or high",
    "rules:\n  - name: A\n    expires_after: 5": "from 60 to",
    "rules:\n  - name: A\n    approval: no": "must be required",
    "rules:\n  - name: A\n    reviewer_may_write: 1": "must be true or false",
    "rules:\n  - name: A\n    on_expiry: approve": "must be deny or fail",
    "rules:\n  - name: A\n    on_expiry: {answer: 1}": "needs match.tool",
    "rules: [{name: A, match: {tool: a}, on_expiry: {answer: 2026-01-01}}]": "quotation marks",
    "rules: [{name: A, match: {tool: a}, on_expiry: {answer: .nan}}]": "must be a JSON value",
    "rules: [{name: A, escalate: [{people: [bo], expires_after: 60}]}]": "changes nothing",
    "rules: [{name: A, quorum: 11}]": "from 1 to 10",
    "rules: [{name: A, undo: 301}]": "from 0 to 300",
    "rules: [{name: A, expires_after: 2592001}]": "to 2592000",
    "rules: [{name: " + "A" * 101 + "}]": "101 characters, at most 100",
    "rules: [{name: A, stages: [{}, {}, {}, {}, {}, {}]}]": "6 elements, at most 5",
    "rules: [{name: A, people: [" + "a, " * 51 + "]}]": "51 elements, at most 50",
    "rules: [" + ", ".join(f"{{name: A{n}}}" for n in range(101)) + "]": "at most 100",
    "rules: [{name: A, match: {tool: a}, on_expiry: {answer: " + "a" * 4_000 + "}}]": "as JSON",
    "rules: [{name: A, people: [b], escalate: [{people: [c]}]}]": "must have expires_after",
    "rules: [{name: A, people: [b], escalate: [{expires_after: 60}]}]": "must name groups or people",
    "rules: [{name: A, people: [b], escalate: [1, 2, 3, 4]}]": "4 elements, at most 3",
    "rules:\n  - name: A\n    when: args.x >": r"line 3, rules\[1\].when: is not valid CEL",
    "rules: &a []\nx: *a": "anchors",
    "rules: !!python/object:os.system {}": "tags",
    "rules: [": "line 1: is not valid YAML",
    # refused before the rest is read, which is not YAML
    "rules: " + "[" * 65 + "&a !b" * 30: "line 1: is nested deeper than 64",
    "rules: [{name: A, match: {tool: a}, on_expiry: {answer: " + "[" * 2_000 + "]" * 2_000: "64",
    "rules: [" + "{}," * 10_000 + "&a": "line 1: has more than 10000 values",
    "x" * (policy_text.MAX_TEXT + 1): "characters",
}


@pytest.mark.parametrize("of", WRONG)
def test_an_error_in_the_text_names_its_line_and_field(of: str) -> None:
    with pytest.raises(policy_text.PolicyInvalid, match=WRONG[of]):
        policy_text.parse(of)


@pytest.mark.parametrize(
    ("condition", "paths"),
    [
        ("args.amount > 3 && has(args.user.name)", ["amount", "user.name"]),
        ("""args["amount"] > 3 || args . x == 'args.y'""", ["amount", "x"]),
        ("args.items.exists(i, i.price > 3)", ["items"]),
        ("args.size() > 1 || args.name.startsWith('args.z')", ["name"]),
        ("tool == 'args.x'", []),
        ("tool.args.x == 1 || 'a' in args", []),
    ],
)
def test_a_condition_tells_which_arguments_it_reads(condition: str, paths: list[str]) -> None:
    assert [".".join(path) for path in judge.list_condition_paths(condition)] == paths


# Votes: each counts in the first stage that lacks people

PEOPLE = [f"p{n}" for n in range(6)]
stages = st.lists(
    st.builds(
        Stage,
        quorum=st.integers(1, 2),
        people=st.lists(st.sampled_from(PEOPLE), max_size=4, unique=True).map(tuple),
    ),
    min_size=1,
    max_size=3,
)


@given(of=stages, free=st.sets(st.sampled_from(PEOPLE)))
def test_people_suffice_exactly_if_some_order_of_votes_completes_the_stages(
    of: list[Stage], free: Collection[str]
) -> None:
    people = dict.fromkeys(free, REVIEWERS)
    assert tally.can_complete(of, {}, people) is _completes(of, {}, frozenset(free))


def _completes(of: list[Stage], votes: dict[str, int], free: frozenset[str]) -> bool:
    stage = tally.find_current_stage(of, votes)
    return stage is None or any(
        _completes(of, {**votes, name: stage}, free - {name})
        for name in sorted(free)
        if of[stage].is_eligible(name, REVIEWERS)
    )


def test_demands_of_a_request_are_read_as_stored() -> None:
    found = Demands(rule="A", stages=(Stage(quorum=2, people=("bea",)),), reason=True)
    assert decode_demands(found.stored()) == found
    assert decode_demands(None) is None


# Drafts


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


# Sentences


RULES = """
rules:
  - name: Large refunds
    match: {tool: refund, risk: [high, medium]}
    when: args.amount > 100 && args.currency == "EUR"
    stages: [{quorum: 2, groups: [finance]}, {people: [bea]}]
    reason: required
    expires_after: 259200
  - name: Payroll
    match: {tool: [pay, book], agent: payroll}
    approval: required
    risk: high
    people: [bea]
    expires_after: 5400
    escalate:
      - {people: [bo, di], expires_after: 1800}
      - {groups: [reviewers], expires_after: 90}
    on_expiry: fail
    undo: 0
  - name: Odd
    match: {tool: mail, agent: [a, b]}
    when: args.to.exists(x, x.endsWith("example.org"))
    quorum: 2
    people: [bea, bo, di]
    on_expiry: {answer: {sent: false}}
    undo: 60
    reviewer_may_write: true
  - name: Rest
    quorum: 3
"""
SENTENCES = {
    "Large refunds": 'refund at medium or high risk where amount is above 100 and currency is "EUR": '
    "2 of finance, then bea, with a reason; expires after 3 days: denied",
    "Payroll": "book or pay of the agent payroll: bea, also where the tool does not ask; at least high risk; "
    "after 1 hour 30 minutes also bo and di; after another 30 minutes also reviewers; "
    "expires after another 1 minute 30 seconds: the run fails; no undo",
    "Odd": 'mail of the agents a or b if args.to.exists(x, x.endsWith("example.org")): 2 of bea, bo or di; '
    'expires after the tool\'s own time: answered with {"sent": false}; can be undone for 1 minute; '
    "people who may decide can write to the run",
    "Rest": "Every call: 3 reviewers",
}


def policy(text: str) -> Policy:
    return policy_text.parse(text)


def test_a_rule_reads_as_one_sentence() -> None:
    sentences = {rule.name: policy_sentences.describe(rule) for rule in policy(RULES).rules}
    assert sentences == SENTENCES


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("args.a.b >= 1.5", "where a.b is at least 1.5"),
        ("args.a != 'x && y' && args.b <= -2", "where a is not 'x && y' and b is at most -2"),
        ("args.a < 1 || args.b < 1", "if args.a < 1 || args.b < 1"),
        ("!(args.a == true)", "if !(args.a == true)"),
        ("args.a > args.b", "if args.a > args.b"),
        ("args.a > 1e3", "if args.a > 1e3"),
        ("size(args.a) > 1", "if size(args.a) > 1"),
    ],
)
def test_only_plain_comparisons_are_put_in_words(condition: str, words: str) -> None:
    (rule,) = policy(f"rules: [{{name: A, when: {condition!r}}}]").rules
    assert policy_sentences.describe(rule) == f"Every call {words}: 1 reviewer"


def test_a_new_version_says_what_it_does_to_each_rule() -> None:
    before = policy("rules: [{name: A}, {name: B}, {name: C}, {name: D, quorum: 2}]")
    after = policy("rules: [{name: C}, {name: B, undo: 9}, {name: N}, {name: D, quorum: 3}]")
    changes = [
        (change.name, str(change.state), change.before)
        for change in policy_sentences.compare(before, after)
    ]
    assert changes == [
        ("C", "moved", ""),
        ("B", "changed and moved", "Every call: 1 reviewer"),
        ("N", "new", ""),
        ("D", "changed", "Every call: 2 reviewers"),
        ("A", "removed", ""),
    ]
