"""Parses the rules that say how long the payloads of ended runs are kept, by agent and status.

`90, */failed=365, hr_onboarding=30, hr_onboarding/failed=never`: days, or never. A number alone applies to all runs. A
rule that names the agent wins over one that names the status, and both win over a number alone.
"""

import re
from dataclasses import dataclass

MAX_DAYS = 36_500
STATUSES = ("completed", "failed", "cancelled", "exported")

_RULE = re.compile(r"(?:(?P<agent>[a-z0-9_]+|\*)(?:/(?P<status>[a-z]+))?\s*=\s*)?(?P<days>\w+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionRule:
    """Erase payloads after this many days, None for never. None as agent or status matches any."""

    agent: str | None = None
    status: str | None = None
    days: int | None


def parse(text: str) -> tuple[RetentionRule, ...]:
    """Parse the rules, the most specific first. Raises ValueError with the mistake."""
    rules = []
    for rule_text in filter(None, map(str.strip, text.split(","))):
        match = _RULE.fullmatch(rule_text)
        if match is None:
            raise ValueError(
                f"has {rule_text!r}: write a rule such as 90 or hr_onboarding/failed=365"
            )
        agent, status, days = match["agent"], match["status"], match["days"]
        if status is not None and status not in STATUSES:
            raise ValueError(f"names {status!r}; runs end as {', '.join(STATUSES)}")
        is_number = days.isascii() and days.isdecimal() and len(days) < 6
        if days != "never" and not (is_number and 1 <= int(days) <= MAX_DAYS):
            raise ValueError(f"has {days!r}: write 1 to {MAX_DAYS} days, or never")
        rule = RetentionRule(
            agent=None if agent == "*" else agent,
            status=status,
            days=None if days == "never" else int(days),
        )
        rules.append(rule)
    places = [(rule.agent, rule.status) for rule in rules]
    if len(set(places)) < len(places):
        raise ValueError("has two rules for the same runs")
    return tuple(sorted(rules, key=lambda rule: (rule.agent is None, rule.status is None)))
