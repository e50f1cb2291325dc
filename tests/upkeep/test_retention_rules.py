"""Rules that say how long a run's payloads are kept."""

import pytest

from runtime.upkeep.retention_rules import Rule, parse

RULES = "90, */failed=365, hr_onboarding = 30, hr_onboarding/failed=never"


def _days_for(rules: tuple[Rule, ...], agent: str, status: str) -> int | None:
    """Return the days of the rule that applies, None for never."""
    fitting = (
        rule.days for rule in rules if rule.agent in (None, agent) and rule.status in (None, status)
    )
    return next(fitting, None)


@pytest.mark.parametrize(
    ("agent", "status", "days"),
    [
        ("refunds", "completed", 90),
        ("refunds", "failed", 365),
        ("hr_onboarding", "cancelled", 30),
        ("hr_onboarding", "failed", None),
    ],
)
def test_the_rule_that_says_most_counts(agent: str, status: str, days: int | None) -> None:
    assert _days_for(parse(RULES), agent, status) == days


def test_an_agents_rule_outdoes_one_of_a_status() -> None:
    assert _days_for(parse("*/failed=365, a=1"), "a", "failed") == 1


@pytest.mark.parametrize("text", ["", " , "])
def test_without_a_rule_nothing_is_removed(text: str) -> None:
    assert _days_for(parse(text), "a", "completed") is None


def test_a_number_alone_is_for_everything() -> None:
    assert parse("7") == parse("*=7") == (Rule(days=7),)
    for status in ("completed", "failed", "cancelled", "exported"):
        assert parse(f"*/{status}=7") == (Rule(status=status, days=7),)
    assert parse("00007, a=36500") == (Rule(agent="a", days=36_500), Rule(days=7))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0", "'0': write 1 to 36500 days, or never"),
        ("-1", "write a rule"),
        ("soon", "'soon': write 1 to"),
        ("36501", "or never"),
        ("9999999", "or never"),
        ("000030", "or never"),
        ("\u0663", "or never"),
        ("Never", "or never"),
        ("a/running=3", "names 'running'; runs end as completed, failed, cancelled, exported"),
        ("a=3, a=4", "two rules for the same runs"),
        ("3, *=4", "two rules for the same runs"),
        ("a=", "write a rule"),
        ("a b=3", "write a rule"),
        ("=3", "write a rule"),
    ],
)
def test_invalid_rules_are_refused_with_the_reason(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        parse(text)
