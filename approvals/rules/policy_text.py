"""Reads a policy from YAML. Every error names the line and the field. Pure.

Only plain YAML without repeated keys, so that what a person reads is what the policy says.
"""

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import yaml
from yaml.nodes import MappingNode, Node, SequenceNode

from approvals.rules import judge, plain_yaml, policy
from approvals.rules.policy import MAX_QUORUM, Escalation, OnExpiry, Policy, Rule, Stage
from runtime.core.values.enums import Risk
from runtime.core.values.expressions import ExpressionError

SETTINGS: Mapping[str, str] = {
    "match.tool": "the tools that the rule is about: a name or a list; every tool without it",
    "match.agent": "the agents that make the call: a name or a list",
    "match.risk": "the risk of the tool: low, medium, high, or a list",
    "when": "a condition in CEL over the facts and arguments of the call",
    "approval": "required: a person must approve, also where the tool asks for none",
    "risk": "low, medium or high: the call has at least this risk",
    "quorum": "how many distinct people must approve",
    "groups": "the groups whose members may approve",
    "people": "the people who may approve, besides the members of groups",
    "stages": "stages in sequence, each with its own quorum, groups and people",
    "reason": "required: an approval needs a reason too",
    "step_up": "required: each decision needs a second factor of the last 5 minutes",
    "expires_after": "seconds until the request expires, or until the first step of escalation",
    "escalate": "steps with groups, people and expires_after: at a deadline these may decide too",
    "on_expiry": "deny, fail (the run) or answer (with a value): the consequence of the last deadline",
    "reviewer_may_write": "true: people who may decide can write to the run, and still decide the requests open then",
    "undo": "seconds in which a decision at low or medium risk can be undone",
}
# The default policy as text: no rule, so each tool's own setting applies and one reviewer decides.
DEFAULT = "rules: []\n"
MAX_TEXT = 64 * 1024
MAX_RULES = 100
MAX_STAGES = 5
MAX_STEPS = 3  # of escalation
MAX_NAMES = 50
MAX_NAME = 100
MAX_ANSWER = 4_000
MIN_EXPIRY, MAX_EXPIRY = 60, 30 * 24 * 3600  # seconds
MAX_UNDO = 300  # seconds
_REQUIRED = "required"
_STAGE = ("quorum", "groups", "people")
_STEP = ("expires_after", "groups", "people")
T = TypeVar("T")


class PolicyInvalid(Exception):
    """A text that is no policy; `line` counts from 1, `field` is empty if the text is not valid YAML."""

    def __init__(self, line: int, field: str, detail: str) -> None:
        location = f"line {line}, {field}" if field else f"line {line}"
        super().__init__(f"{location}: {detail}")
        self.line = line
        self.field = field
        self.detail = detail


def parse(text: str, version: str = "") -> Policy:
    """Read a policy. Raise PolicyInvalid at the first error."""
    rules, problems = read(text)
    if problems:
        raise problems[0]
    read_rules = tuple(rule for rule in rules if rule is not None)
    return Policy(version=version or policy.POLICY_VERSION, rules=read_rules)


def read(text: str) -> tuple[tuple[Rule | None, ...], list[PolicyInvalid]]:
    """Return the rules of a text, and the errors of its fields in their order.

    A rule is None if it has an unknown field, or no name. A field with an error has its default.
    """
    problems = list[PolicyInvalid]()
    no_rules: tuple[Rule | None, ...] = ()
    rules = _attempt(problems, partial(_parse_rules, text, problems), no_rules)
    return rules, sorted(problems, key=lambda problem: problem.line)


def _parse_rules(text: str, problems: list[PolicyInvalid]) -> tuple[Rule | None, ...]:
    if len(text) > MAX_TEXT:
        raise PolicyInvalid(1, "", f"has {len(text)} characters, at most {MAX_TEXT} are allowed")
    try:
        root = plain_yaml.compose(text)
    except plain_yaml.YamlInvalid as exc:
        raise PolicyInvalid(exc.line, "", exc.detail) from exc
    if root is None:
        raise PolicyInvalid(1, "rules", "is required; a policy without rules has rules: []")
    fields = _TextNode(node=root, name="").fields(("rules",))
    if "rules" not in fields:
        raise PolicyInvalid(1, "rules", "is required; a policy without rules has rules: []")
    rules = tuple(
        _attempt(problems, partial(_parse_rule, item, problems), None)
        for item in fields["rules"].items(MAX_RULES)
    )
    names = [rule.name for rule in rules if rule is not None and rule.name]
    _attempt(problems, partial(_check_names, names, fields["rules"]), None)
    return rules


def _attempt(problems: list[PolicyInvalid], act: Callable[[], T], default: T) -> T:
    """Return the result of `act`; note its error and return the default if it has one."""
    try:
        return act()
    except PolicyInvalid as exc:
        problems.append(exc)
        return default


@dataclass(frozen=True, slots=True)
class _TextNode:
    """A node of the text, with the name that an error gives it."""

    node: Node
    name: str

    def wrong(self, detail: str) -> PolicyInvalid:
        return PolicyInvalid(self.node.start_mark.line + 1, self.name, detail)

    def fields(self, allowed: Collection[str]) -> dict[str, "_TextNode"]:
        """Return the fields of an object. Raises PolicyInvalid for one that is unknown or repeated."""
        if not isinstance(self.node, MappingNode):
            raise self.wrong("must be fields with values")
        nodes = dict[str, _TextNode]()
        for key, value in self.node.value:
            name = str(key.value)
            field = _TextNode(key, f"{self.name}.{name}" if self.name else name)
            if name not in allowed:
                raise field.wrong(f"is unknown; known are {', '.join(allowed)}")
            if name in nodes:
                raise field.wrong("is given twice")
            nodes[name] = _TextNode(value, field.name)
        return nodes

    def items(self, limit: int) -> list["_TextNode"]:
        if not isinstance(self.node, SequenceNode):
            raise self.wrong("must be a list")
        if len(self.node.value) > limit:
            raise self.wrong(f"has {len(self.node.value)} elements, at most {limit} are allowed")
        return [_TextNode(node, f"{self.name}[{n}]") for n, node in enumerate(self.node.value, 1)]

    def value(self) -> Any:
        if isinstance(self.node, MappingNode | SequenceNode):
            raise self.wrong("must be one value")
        try:
            return yaml.SafeLoader("").construct_object(self.node)
        except (yaml.YAMLError, ValueError) as exc:
            raise self.wrong("has a value that cannot be read") from exc

    def read_json(self) -> Any:
        """Return a JSON value."""
        try:
            document = yaml.SafeLoader("").construct_document(self.node)
            size = len(json.dumps(document, allow_nan=False))
        except (yaml.YAMLError, ValueError, TypeError) as exc:
            raise self.wrong("must be a JSON value; put quotation marks around dates") from exc
        if size > MAX_ANSWER:
            raise self.wrong(f"has {size} characters as JSON, at most {MAX_ANSWER} are allowed")
        return json.loads(json.dumps(document))

    def text(self) -> str:
        text = self.value()
        if not isinstance(text, str) or not text.strip():
            raise self.wrong("must be text")
        if len(text) > MAX_NAME:
            raise self.wrong(f"has {len(text)} characters, at most {MAX_NAME} are allowed")
        return text

    def texts(self) -> list[str]:
        """Return a list of names; one name alone is a list too."""
        if not isinstance(self.node, SequenceNode):
            return [self.text()]
        names = [node.text() for node in self.items(MAX_NAMES)]
        if not names:
            raise self.wrong("must name at least one")
        return names

    def number(self, low: int, high: int) -> int:
        number = self.value()
        if type(number) is not int or not low <= number <= high:
            raise self.wrong(f"must be a whole number from {low} to {high}")
        return number

    def read_flag(self) -> bool:
        flag = self.value()
        if not isinstance(flag, bool):
            raise self.wrong("must be true or false")
        return flag

    def read_choice(self, allowed: Collection[str]) -> str:
        value = self.value()
        if value not in allowed:
            raise self.wrong(f"must be {' or '.join(allowed)}")
        return str(value)


def _parse_rule(node: _TextNode, problems: list[PolicyInvalid]) -> Rule:
    top = tuple(dict.fromkeys(name.partition(".")[0] for name in SETTINGS))
    fields = node.fields(("name", *top))
    if "name" not in fields:
        raise node.wrong("must have a name")

    def attempt(act: Callable[[], T], default: T) -> T:
        return _attempt(problems, act, default)

    def value(name: str, read: Callable[[_TextNode], T], default: T) -> T:
        return attempt(partial(_read, fields, name, read, default=default), default)

    inner = tuple(name.partition(".")[2] for name in SETTINGS if name.startswith("match."))
    readable = len(problems)
    match = value("match", lambda field: field.fields(inner), dict[str, _TextNode]())
    no_stages: tuple[Stage, ...] = ()
    stages = attempt(partial(_parse_stages, fields), no_stages)
    ending: tuple[OnExpiry, object] = (OnExpiry.DENY, None)
    escalate: tuple[Escalation, ...] = ()
    if len(problems) == readable:  # both depend on match and stages
        escalate = attempt(partial(_parse_escalations, fields, stages), escalate)
        ending = attempt(partial(_on_expiry, fields, match), ending)
    return Rule(
        name=value("name", _TextNode.text, ""),
        tools=attempt(partial(_parse_names, match, "tool"), frozenset()),
        agents=attempt(partial(_parse_names, match, "agent"), frozenset()),
        risks=attempt(partial(_parse_risks, match), frozenset()),
        when=attempt(partial(_parse_condition, fields), ""),
        approval=value("approval", _parse_required, default=False),
        risk=value("risk", lambda field: Risk(field.read_choice(list(Risk))), default=None),
        stages=stages,
        reason=value("reason", _parse_required, default=False),
        step_up=value("step_up", _parse_required, default=False),
        expires_after=value("expires_after", _parse_seconds, default=None),
        escalate=escalate,
        on_expiry=ending[0],
        answer=ending[1],
        undo=value("undo", lambda field: field.number(0, MAX_UNDO), default=None),
        reviewer_may_write=value("reviewer_may_write", _TextNode.read_flag, default=False),
    )


def _parse_stages(fields: Mapping[str, _TextNode]) -> tuple[Stage, ...]:
    if "stages" not in fields:
        return (_parse_stage({name: node for name, node in fields.items() if name in _STAGE}),)
    for name in _STAGE:
        if name in fields:
            raise fields[name].wrong("must be set in each stage, because the rule has stages")
    stages = fields["stages"].items(MAX_STAGES)
    if not stages:
        raise fields["stages"].wrong("must have at least one stage")
    return tuple(_parse_stage(node.fields(_STAGE)) for node in stages)


def _parse_stage(fields: Mapping[str, _TextNode]) -> Stage:
    return Stage(
        quorum=_read(fields, "quorum", lambda node: node.number(1, MAX_QUORUM), default=1),
        groups=_parse_groups(fields),
        people=_read(fields, "people", _parse_texts, default=()),
    )


def _parse_groups(fields: Mapping[str, _TextNode]) -> tuple[str, ...]:
    groups: tuple[str, ...] = _read(fields, "groups", _parse_texts, default=())
    for group in groups:
        if group not in policy.DECIDING and not policy.is_named(group):
            raise fields["groups"].wrong(f"{group} is not a group whose members may decide")
    return groups


def _parse_escalations(
    fields: Mapping[str, _TextNode], stages: Collection[Stage]
) -> tuple[Escalation, ...]:
    """Read the steps of escalation. Each must name groups or people, and when it ends."""
    if "escalate" not in fields:
        return ()
    if all(set(Stage().keys) <= set(stage.keys) for stage in stages):
        raise fields["escalate"].wrong("changes nothing, because every reviewer may decide anyway")
    steps = list[Escalation]()
    for node in fields["escalate"].items(MAX_STEPS):
        settings = node.fields(_STEP)
        if "expires_after" not in settings:
            raise node.wrong("must have expires_after, the seconds until the step ends")
        step = Escalation(
            seconds=_parse_seconds(settings["expires_after"]),
            groups=_parse_groups(settings),
            people=_read(settings, "people", _parse_texts, default=()),
        )
        if not step.keys:
            raise node.wrong("must name groups or people")
        steps.append(step)
    if not steps:
        raise fields["escalate"].wrong("must have at least one step")
    return tuple(steps)


def _on_expiry(
    fields: Mapping[str, _TextNode], match: Mapping[str, _TextNode]
) -> tuple[OnExpiry, object]:
    """Read the consequence of the last deadline, and the answer if it is one."""
    if "on_expiry" not in fields:
        return OnExpiry.DENY, None
    node = fields["on_expiry"]
    if not isinstance(node.node, MappingNode):
        return OnExpiry(node.read_choice((OnExpiry.DENY, OnExpiry.FAIL))), None
    settings = node.fields((OnExpiry.ANSWER,))
    if OnExpiry.ANSWER not in settings:
        raise node.wrong("must be deny, fail or answer with a value")
    if "tool" not in match:
        raise node.wrong("needs match.tool, so that the answer can be compared with its result")
    return OnExpiry.ANSWER, settings[OnExpiry.ANSWER].read_json()


def _parse_seconds(node: _TextNode) -> int:
    return node.number(MIN_EXPIRY, MAX_EXPIRY)


def _parse_names(fields: Mapping[str, _TextNode], name: str) -> frozenset[str]:
    return frozenset(fields[name].texts() if name in fields else ())


def _parse_risks(fields: Mapping[str, _TextNode]) -> frozenset[str]:
    risks = _parse_names(fields, "risk")
    for risk in risks:
        if risk not in list(Risk):
            raise fields["risk"].wrong(f"must be {' or '.join(Risk)}")
    return risks


def _parse_condition(fields: Mapping[str, _TextNode]) -> str:
    if "when" not in fields:
        return ""
    condition = fields["when"].value()
    if not isinstance(condition, str):
        raise fields["when"].wrong("must be text; put quotation marks around it")
    try:
        judge.check_condition(condition)
    except ExpressionError as exc:
        raise fields["when"].wrong(str(exc)) from exc
    return condition


def _parse_texts(node: _TextNode) -> tuple[str, ...]:
    return tuple(node.texts())


def _parse_required(node: _TextNode) -> bool:
    return bool(node.read_choice((_REQUIRED,)))


def _read(
    fields: Mapping[str, _TextNode], name: str, read: Callable[[_TextNode], T], *, default: T
) -> T:
    return read(fields[name]) if name in fields else default


def _check_names(names: Sequence[str], node: _TextNode) -> None:
    for name in names:
        if names.count(name) > 1:
            raise node.wrong(f"has two rules with the name {name}")
