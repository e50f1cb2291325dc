"""Each rule as a sentence, and what a new version does to each rule. Pure."""

import pytest

from approvals.rules import policy_sentences, policy_text
from approvals.rules.policy import Policy

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
