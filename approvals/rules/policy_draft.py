"""Writes rules as YAML, and changes single rules of a draft. Reading the result gives the same rules. Pure.

A rule that stays keeps its own lines with their comments, if the draft lists its rules in lines of their own.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import yaml
from yaml.nodes import MappingNode, SequenceNode

from approvals.rules import plain_yaml, policy_text
from approvals.rules.policy import Escalation, OnExpiry, Policy, Rule, Stage

Item = int | Rule  # the number of a rule of the draft, from 0, or a new rule


class _DraftDumper(yaml.SafeDumper):
    """Writes plain YAML: values that repeat are written again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def to_yaml(policy: Policy) -> str:
    """Write a policy as YAML."""
    return _dump({"rules": [_settings(rule) for rule in policy.rules]})


def rule_yaml(rule: Rule) -> str:
    """Write one rule as an element of a list."""
    return _dump([_settings(rule)])


def rewrite(text: str, items: Sequence[Item]) -> str:
    """Return the draft with these rules in this order. Raises PolicyInvalid, for the draft or for the result."""
    rules = policy_text.parse(text).rules
    rules_after = tuple(rules[item] if isinstance(item, int) else item for item in items)
    lines = _lines(text, items)
    # Lines of several rules can make other YAML together: then all rules are written anew.
    with suppress(policy_text.PolicyInvalid):
        if lines is not None and policy_text.parse(lines).rules == rules_after:
            return lines
    written = to_yaml(Policy(rules=rules_after))
    policy_text.parse(written)
    return written


def _lines(text: str, items: Sequence[Item]) -> str | None:
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
            parts += (indent + line for line in rule_yaml(item).splitlines(keepends=True))
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


def _settings(rule: Rule) -> dict[str, Any]:
    """Return the settings of a rule that are not the default, by their names in YAML."""
    match = {"tool": rule.tools, "agent": rule.agents, "risk": rule.risks}
    return dict(
        _without_empty(
            name=rule.name,
            match={name: _one_or_all(sorted(names)) for name, names in match.items() if names},
            when=rule.when,
            approval="required" if rule.approval else None,
            risk=None if rule.risk is None else str(rule.risk),
            **_people(rule.stages),
            reason="required" if rule.reason else None,
            step_up="required" if rule.step_up else None,
            expires_after=rule.expires_after,
            escalate=[_step(step) for step in rule.escalate],
            on_expiry=_on_expiry(rule),
            reviewer_may_write=rule.reviewer_may_write or None,
        ),
        **({} if rule.undo is None else {"undo": rule.undo}),
    )


def _people(stages: Sequence[Stage]) -> dict[str, Any]:
    written = [_stage(stage) for stage in stages]
    return written[0] if len(written) == 1 else {"stages": written}


def _stage(stage: Stage) -> dict[str, Any]:
    quorum = None if stage.quorum == 1 else stage.quorum
    return dict(_without_empty(quorum=quorum, groups=[*stage.groups], people=[*stage.people]))


def _step(step: Escalation) -> dict[str, Any]:
    return dict(
        _without_empty(groups=[*step.groups], people=[*step.people], expires_after=step.seconds)
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


def _one_or_all(names: Sequence[str]) -> str | list[str]:
    return names[0] if len(names) == 1 else [*names]
