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
    rules = [_rule(part.strip()) for part in text.split(",") if part.strip()]
    places = [(rule.agent, rule.status) for rule in rules]
    if len(set(places)) < len(places):
        raise ValueError("has two rules for the same runs")
    return tuple(sorted(rules, key=lambda rule: (rule.agent is None, rule.status is None)))


def _rule(text: str) -> RetentionRule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise ValueError(f"has {text!r}: write a rule such as 90 or hr_onboarding/failed=365")
    agent, status = match["agent"], match["status"]
    if status is not None and status not in STATUSES:
        raise ValueError(f"names {status!r}; runs end as {', '.join(STATUSES)}")
    return RetentionRule(
        agent=None if agent == "*" else agent, status=status, days=_days(match["days"])
    )


def _days(text: str) -> int | None:
    if text == "never":
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= MAX_DAYS):
        raise ValueError(f"has {text!r}: write 1 to {MAX_DAYS} days, or never")
    return int(text)
