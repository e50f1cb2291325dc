"""Rules that say how long a run's payloads are kept."""

import pytest

from runtime.upkeep.retention_rules import RetentionRule, parse

RULES = "90, */failed=365, hr_onboarding = 30, hr_onboarding/failed=never"


@pytest.mark.parametrize(
    ("text", "agent", "status", "days"),
    [
        (RULES, "refunds", "completed", 90),
        (RULES, "refunds", "failed", 365),
        (RULES, "hr_onboarding", "cancelled", 30),
        (RULES, "hr_onboarding", "failed", None),
        ("*/failed=365, a=1", "a", "failed", 1),
        (" , ", "a", "completed", None),
    ],
)
def test_the_narrowest_rule_counts(text: str, agent: str, status: str, days: int | None) -> None:
    fitting = (
        rule.days
        for rule in parse(text)
        if rule.agent in (None, agent) and rule.status in (None, status)
    )
    assert next(fitting, None) == days


def test_a_number_alone_is_for_everything() -> None:
    assert parse("7") == parse("*=7") == (RetentionRule(days=7),)
    for status in ("completed", "failed", "cancelled", "exported"):
        assert parse(f"*/{status}=7") == (RetentionRule(status=status, days=7),)
    assert parse("00007, a=36500") == (RetentionRule(agent="a", days=36_500), RetentionRule(days=7))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0", "'0': write 1 to 36500 days, or never"),
        ("-1", "write a rule"),
        ("soon", "'soon': write 1 to"),
        ("36501", "or never"),
        ("000030", "or never"),
        ("\u0663", "or never"),
        ("a/running=3", "names 'running'; runs end as completed, failed, cancelled, exported"),
        ("a=3, a=4", "two rules for the same runs"),
        ("3, *=4", "two rules for the same runs"),
        ("a=", "write a rule"),
        ("=3", "write a rule"),
    ],
)
def test_invalid_rules_are_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text)
