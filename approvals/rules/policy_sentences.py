"""Says each rule of a policy as a sentence, and what a new version changes. Pure."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from approvals.rules.policy import Escalation, OnExpiry, Policy, Rule, Stage
from approvals.rules.roles import DECIDING
from runtime.core.values.enums import RISKS

_UNITS = ((86400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
_OPERATORS = {
    "==": "is",
    "!=": "is not",
    ">": "is above",
    ">=": "is at least",
    "<": "is below",
    "<=": "is at most",
}
_COMPARISON = (
    r"args\.([A-Za-z_][\w.]*) *(==|!=|>=|<=|>|<) *"
    r"(-?\d+(?:\.\d+)?|true|false|\"[^\"\\]*\"|'[^'\\]*')"
)
_COMPARISONS = re.compile(rf"{_COMPARISON}(?: *&& *{_COMPARISON})*")
_ENDINGS = {
    OnExpiry.DENY: "denied",
    OnExpiry.FAIL: "the run fails",
}


class RuleState(StrEnum):
    """What a new version does with a rule."""

    SAME = ""  # neither the rule nor its place among those that stay
    NEW = "new"
    CHANGED = "changed"
    CHANGED_AND_MOVED = "changed and moved"
    MOVED = "moved"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleChange:
    """A rule of the new version, or one that it removes; `before` is the sentence of a changed one until now."""

    name: str
    sentence: str
    state: RuleState
    before: str = ""


def describe(rule: Rule) -> str:
    """Say to which calls a rule applies, who decides them, and the end without a decision."""
    demands = [_people(rule)]
    if rule.risk is not None:
        demands.append(f"at least {rule.risk} risk")
    demands += _deadlines(rule)
    if rule.undo is not None:
        demands.append(f"can be undone for {_time(rule.undo)}" if rule.undo else "no undo")
    if rule.reviewer_may_write:
        demands.append("people who may decide can write to the run")
    return f"{_calls(rule)}: {'; '.join(demands)}"


def compare(before: Policy, after: Policy) -> tuple[RuleChange, ...]:
    """List the rules of the new version in their order, then those that it removes."""
    old = {rule.name: rule for rule in before.rules}
    names = {rule.name for rule in after.rules}
    before_order = [rule.name for rule in before.rules if rule.name in names]
    after_order = [rule.name for rule in after.rules if rule.name in old]
    moved = {name for name, other in zip(after_order, before_order, strict=True) if name != other}
    changes = [_change(old.get(rule.name), rule, moved=rule.name in moved) for rule in after.rules]
    removed = [
        RuleChange(name=rule.name, sentence=describe(rule), state=RuleState.REMOVED)
        for rule in before.rules
        if rule.name not in names
    ]
    return (*changes, *removed)


def condition(text: str) -> str:
    """Say comparisons of arguments in words; another condition stands as it is."""
    text = text.strip()
    if not text:
        return ""
    if not _COMPARISONS.fullmatch(text):
        return f" if {text}"
    comparisons = (
        f"{name} {_OPERATORS[operator]} {value}"
        for name, operator, value in re.findall(_COMPARISON, text)
    )
    return f" where {' and '.join(comparisons)}"


def _change(before: Rule | None, after: Rule, *, moved: bool) -> RuleChange:
    sentence, until_now = describe(after), ""
    if before is None:
        state = RuleState.NEW
    elif before != after:
        state = RuleState.CHANGED_AND_MOVED if moved else RuleState.CHANGED
        until_now = describe(before)
    else:
        state = RuleState.MOVED if moved else RuleState.SAME
    return RuleChange(name=after.name, sentence=sentence, state=state, before=until_now)


def _calls(rule: Rule) -> str:
    calls = _join(sorted(rule.tools), "or") or "Every call"
    if rule.agents:
        calls += f" of the agent{'s' * (len(rule.agents) > 1)} {_join(sorted(rule.agents), 'or')}"
    if rule.risks:
        calls += f" at {_join([risk for risk in RISKS if risk in rule.risks], 'or')} risk"
    return calls + condition(rule.when)


def _people(rule: Rule) -> str:
    people = ", then ".join(_stage(stage) for stage in rule.stages)
    if rule.reason:
        people += ", with a reason"
    if rule.step_up:
        people += ", with a fresh second factor"
    return people + (", also where the tool does not ask" if rule.approval else "")


def _stage(stage: Stage) -> str:
    names = _names(stage)
    if not names or (set(stage.groups) == set(DECIDING) and not stage.people):
        return f"{stage.quorum} reviewer{'s' * (stage.quorum > 1)}"
    if stage.quorum == 1 and not stage.groups:
        return _join(names, "or")
    return f"{stage.quorum} of {_join(names, 'or')}"


def _deadlines(rule: Rule) -> list[str]:
    """Say when more people may decide, and what the last deadline does."""
    if rule.expires_after is None and not rule.escalate and rule.on_expiry is OnExpiry.DENY:
        return []
    first = "the tool's own time" if rule.expires_after is None else _time(rule.expires_after)
    times = [first, *(f"another {_time(step.seconds)}" for step in rule.escalate)]
    steps = (
        f"after {time} also {_join(_names(step), 'and')}"
        for time, step in zip(times, rule.escalate, strict=False)
    )
    ending = _ENDINGS.get(rule.on_expiry) or f"answered with {_json(rule.answer)}"
    return [*steps, f"expires after {times[-1]}: {ending}"]


def _names(of: Stage | Escalation) -> list[str]:
    return [*of.groups, *of.people]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _time(seconds: float) -> str:
    """Format whole seconds exactly: `3 days`, `1 hour 30 minutes`."""
    parts, remaining = list[str](), int(seconds)
    for size, unit in _UNITS:
        count, remaining = divmod(remaining, size)
        if count:
            parts.append(f"{count} {unit}{'s' * (count > 1)}")
    return " ".join(parts)


def _join(names: Sequence[str] | Iterable[str], word: str) -> str:
    *first, last = [*names] or [""]
    return f"{', '.join(first)} {word} {last}" if first else last
