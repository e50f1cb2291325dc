"""Says each rule of a policy as a sentence, and as YAML in a draft, and what a new version changes. Pure.

A rule that stays keeps its own lines with their comments, if the draft lists its rules in lines of their own.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import yaml
from yaml.nodes import MappingNode, SequenceNode

from approvals.rules import plain_yaml, policy_text
from approvals.rules.policy import DECIDING, Escalation, OnExpiry, Policy, Rule, Stage
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
Item = int | Rule  # the number of a rule of the draft, from 0, or a new rule


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
    calls = _join(sorted(rule.tools), "or") or "Every call"
    if rule.agents:
        calls += f" of the agent{'s' * (len(rule.agents) > 1)} {_join(sorted(rule.agents), 'or')}"
    if rule.risks:
        calls += f" at {_join([risk for risk in RISKS if risk in rule.risks], 'or')} risk"
    calls += describe_condition(rule.when)
    people = ", then ".join(_describe_stage(stage) for stage in rule.stages)
    if rule.reason:
        people += ", with a reason"
    if rule.step_up:
        people += ", with a fresh second factor"
    if rule.approval:
        people += ", also where the tool does not ask"
    demands = [people]
    if rule.risk is not None:
        demands.append(f"at least {rule.risk} risk")
    demands += _describe_deadlines(rule)
    if rule.undo is not None:
        demands.append(f"can be undone for {_format_time(rule.undo)}" if rule.undo else "no undo")
    if rule.reviewer_may_write:
        demands.append("people who may decide can write to the run")
    return f"{calls}: {'; '.join(demands)}"


def compare(before: Policy, after: Policy) -> tuple[RuleChange, ...]:
    """List the rules of the new version in their order, then those that it removes."""
    old = {rule.name: rule for rule in before.rules}
    names = {rule.name for rule in after.rules}
    before_order = [rule.name for rule in before.rules if rule.name in names]
    after_order = [rule.name for rule in after.rules if rule.name in old]
    moved = {name for name, other in zip(after_order, before_order, strict=True) if name != other}
    changes = []
    for rule in after.rules:
        old_rule, is_moved, until_now = old.get(rule.name), rule.name in moved, ""
        if old_rule is None:
            state = RuleState.NEW
        elif old_rule != rule:
            state = RuleState.CHANGED_AND_MOVED if is_moved else RuleState.CHANGED
            until_now = describe(old_rule)
        else:
            state = RuleState.MOVED if is_moved else RuleState.SAME
        sentence = describe(rule)
        change = RuleChange(name=rule.name, sentence=sentence, state=state, before=until_now)
        changes.append(change)
    removed = [
        RuleChange(name=rule.name, sentence=describe(rule), state=RuleState.REMOVED)
        for rule in before.rules
        if rule.name not in names
    ]
    return (*changes, *removed)


def describe_condition(text: str) -> str:
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


def _describe_stage(stage: Stage) -> str:
    names = _list_names(stage)
    if not names or (set(stage.groups) == set(DECIDING) and not stage.people):
        return f"{stage.quorum} reviewer{'s' * (stage.quorum > 1)}"
    if stage.quorum == 1 and not stage.groups:
        return _join(names, "or")
    return f"{stage.quorum} of {_join(names, 'or')}"


def _describe_deadlines(rule: Rule) -> list[str]:
    """Say when more people may decide, and what the last deadline does."""
    if rule.expires_after is None and not rule.escalate and rule.on_expiry is OnExpiry.DENY:
        return []
    first = (
        "the tool's own time" if rule.expires_after is None else _format_time(rule.expires_after)
    )
    times = [first, *(f"another {_format_time(step.seconds)}" for step in rule.escalate)]
    steps = (
        f"after {time} also {_join(_list_names(step), 'and')}"
        for time, step in zip(times, rule.escalate, strict=False)
    )
    ending = (
        _ENDINGS.get(rule.on_expiry)
        or f"answered with {json.dumps(rule.answer, ensure_ascii=False)}"
    )
    return [*steps, f"expires after {times[-1]}: {ending}"]


def _list_names(of: Stage | Escalation) -> list[str]:
    return [*of.groups, *of.people]


def _format_time(seconds: float) -> str:
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


class _DraftDumper(yaml.SafeDumper):
    """Writes plain YAML: values that repeat are written again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(policy: Policy) -> str:
    """Write a policy as YAML."""
    return _dump({"rules": [_collect_settings(rule) for rule in policy.rules]})


def write_rule_yaml(rule: Rule) -> str:
    """Write one rule as an element of a list."""
    return _dump([_collect_settings(rule)])


def rewrite(text: str, items: Sequence[Item]) -> str:
    """Return the draft with these rules in this order. Raises PolicyInvalid, for the draft or for the result."""
    rules = policy_text.parse(text).rules
    rules_after = tuple(rules[item] if isinstance(item, int) else item for item in items)
    lines = _merge_lines(text, items)
    # Lines of several rules can make other YAML together: then all rules are written anew.
    with suppress(policy_text.PolicyInvalid):
        if lines is not None and policy_text.parse(lines).rules == rules_after:
            return lines
    written = to_yaml(Policy(rules=rules_after))
    policy_text.parse(written)
    return written


def _merge_lines(text: str, items: Sequence[Item]) -> str | None:
    """Return the lines of the rules that stay with those of new rules; None if a line has parts of two rules."""
    root = plain_yaml.compose(text)
    assert isinstance(root, MappingNode)  # parsed already
    node = root.value[0][1]
    if not isinstance(node, SequenceNode) or node.flow_style or not items:
        return None
    lines = text.splitlines(keepends=True)
    if not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    starts = [_start(lines, item.start_mark.line) for item in node.value]
    ends = [*starts[1:], len(lines)]
    indent = " " * node.start_mark.column
    parts = ["".join(lines[: starts[0]])]
    for item in items:
        if isinstance(item, int):
            parts.append("".join(lines[starts[item] : ends[item]]))
        else:
            parts += (indent + line for line in write_rule_yaml(item).splitlines(keepends=True))
    return "".join(parts)


def _start(lines: Sequence[str], line: int) -> int:
    """Return the first line of a rule with the comments above it."""
    while line > 0 and lines[line - 1].lstrip().startswith("#"):
        line -= 1
    return line


def _dump(document: Any) -> str:
    return str(
        yaml.dump(document, Dumper=_DraftDumper, sort_keys=False, allow_unicode=True, width=100)
    )


def _collect_settings(rule: Rule) -> dict[str, Any]:
    """Return the settings of a rule that are not the default, by their names in YAML."""
    match = {"tool": sorted(rule.tools), "agent": sorted(rule.agents), "risk": sorted(rule.risks)}
    stages = [
        dict(
            _without_empty(
                quorum=None if stage.quorum == 1 else stage.quorum,
                groups=[*stage.groups],
                people=[*stage.people],
            )
        )
        for stage in rule.stages
    ]
    return dict(
        _without_empty(
            name=rule.name,
            match={
                name: names[0] if len(names) == 1 else names
                for name, names in match.items()
                if names
            },
            when=rule.when,
            approval="required" if rule.approval else None,
            risk=None if rule.risk is None else str(rule.risk),
            **(stages[0] if len(stages) == 1 else {"stages": stages}),
            reason="required" if rule.reason else None,
            step_up="required" if rule.step_up else None,
            expires_after=rule.expires_after,
            escalate=[
                dict(
                    _without_empty(
                        groups=[*step.groups], people=[*step.people], expires_after=step.seconds
                    )
                )
                for step in rule.escalate
            ],
            on_expiry=_on_expiry(rule),
            reviewer_may_write=rule.reviewer_may_write or None,
        ),
        **({} if rule.undo is None else {"undo": rule.undo}),
    )


def _on_expiry(rule: Rule) -> Any:
    match rule.on_expiry:
        case OnExpiry.DENY:
            return None
        case OnExpiry.ANSWER:
            return {str(OnExpiry.ANSWER): rule.answer}
    return str(rule.on_expiry)


def _without_empty(**settings: Any) -> Iterator[tuple[str, Any]]:
    """Leave out empty settings."""
    return ((name, value) for name, value in settings.items() if value not in (None, "", [], {}))
