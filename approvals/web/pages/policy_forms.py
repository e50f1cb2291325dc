"""The form of one rule of the policy, with fields that fit. A rule that it cannot say exactly stays YAML."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from approvals.people import accounts
from approvals.rules.policy import DECIDING, Escalation, OnExpiry, Rule, Stage
from approvals.rules.policy_text import MAX_NAME
from runtime.core.values.enums import RISKS, Risk
from runtime.ports import wiring
from runtime.web.forms import PageForm, TypedField

STAGES, STEPS = (1, 2, 3), (1, 2)
LISTED = 30  # names of published tools and agents beside their fields
_PLAIN = ("name", "when", "approval", "reason", "step_up")  # as in the rule
_UNITS = {"days": 86400, "hours": 3600, "minutes": 60, "seconds": 1}
_UNIT_CHOICES = [(unit, unit) for unit in _UNITS]
_RISKS = [(str(risk), str(risk)) for risk in RISKS]
_ENDINGS = [
    (str(OnExpiry.DENY), "the call is denied"),
    (str(OnExpiry.FAIL), "the call is denied and the run fails"),
    (str(OnExpiry.ANSWER), "the agent gets the answer below, and the call is not made"),
]


class RuleForm(PageForm):
    """A rule, with `STAGES` stages and `STEPS` steps of escalation."""

    name = TypedField("Name of the rule", maximum=MAX_NAME, required=True)
    tools = TypedField("Tools", optional=True, help="With commas between them; every tool without.")
    agents = TypedField("Agents", optional=True, help="With commas; every agent without.")
    risks = TypedField("Risk of the tool, any if none is chosen", "checks", choices=_RISKS)
    when = TypedField(
        "Condition",
        "long",
        rows=2,
        optional=True,
        spellcheck="false",
        help="In CEL over the arguments, such as args.amount > 100",
    )
    approval = TypedField("A person must approve, also where the tool asks for none", "check")
    risk = TypedField("At least this risk", choices=[("", "the tool's own risk"), *_RISKS])
    reason = TypedField("An approval needs a reason", "check")
    step_up = TypedField("Each decision needs a fresh second factor", "check")
    expires = TypedField("Expires after", "integer", optional=True)
    expires_unit = TypedField("Unit", choices=_UNIT_CHOICES)
    on_expiry = TypedField("If no person decides in time", choices=_ENDINGS)
    answer = TypedField("Answer, as JSON", "json", rows=2, optional=True)
    undo = TypedField("Seconds in which it can be undone", "integer", optional=True)
    writes = TypedField("People who may decide can write to the run", "check")

    def __init__(self, data: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(data, ids="rule-", **options)
        groups = [(name, name) for name in (*sorted(DECIDING), *accounts.list_named_groups())]
        for number in STAGES:
            self._add(f"quorum_{number}", TypedField("How many people", "integer", optional=True))
            self._add_people(f"_{number}", groups)
        for number in STEPS:
            self._add(f"step_{number}", TypedField("For this time", "integer", optional=True))
            self._add(f"step_unit_{number}", TypedField("Unit", choices=_UNIT_CHOICES))
            self._add_people(f"_step_{number}", groups)
        self.groups = {name for name, _ in groups}
        catalogue = wiring.resolve_catalogue()
        for field, names in (
            ("tools", sorted(catalogue.tools())),
            ("agents", catalogue.list_names()),
        ):
            listed = ", ".join(names[:LISTED]) + (" and others" if len(names) > LISTED else "")
            self.fields[field].help_text += f" Published: {listed or 'none yet'}."

    def clean(self) -> None:
        """Refuse a value that is no choice of its field."""
        for name, choices in (("risk", ["", *RISKS]), ("on_expiry", ["", *OnExpiry])):
            if self.cleaned_data.get(name, "") not in choices:
                self.add_error(name, "is not a choice")

    def _add_people(self, suffix: str, groups: list[tuple[str, str]]) -> None:
        self._add(f"groups{suffix}", TypedField("Of these groups", "checks", choices=groups))
        self._add(f"people{suffix}", TypedField("Or these people, with commas", optional=True))

    def _add(self, name: str, field: TypedField) -> None:
        self.fields[name] = field

    @property
    def stages(self) -> Iterable[dict[str, Any]]:
        """The fields of each stage."""
        for number in STAGES:
            yield self._fold(f"quorum_{number}", f"groups_{number}", f"people_{number}")

    @property
    def steps(self) -> Iterable[dict[str, Any]]:
        """The fields of each step of escalation."""
        for n in STEPS:
            yield self._fold(f"groups_step_{n}", f"people_step_{n}", f"step_{n}", f"step_unit_{n}")

    def _fold(self, *names: str) -> dict[str, Any]:
        fields = [self[name] for name in names]
        return {"fields": fields, "open": any(field.value() for field in fields[:3])}


def build_rule_form(rule: Rule) -> RuleForm | None:
    """Return the form of a rule, None if its fields would say something else."""
    is_answer = rule.on_expiry is OnExpiry.ANSWER
    values: dict[str, Any] = {
        **{name: getattr(rule, name) for name in _PLAIN},
        "tools": ", ".join(sorted(rule.tools)),
        "agents": ", ".join(sorted(rule.agents)),
        "risks": sorted(rule.risks),
        "risk": rule.risk or "",
        **_build_time_fields("expires", "expires_unit", rule.expires_after),
        "on_expiry": rule.on_expiry,
        "answer": json.dumps(rule.answer, ensure_ascii=False) if is_answer else "",
        "undo": "" if rule.undo is None else str(rule.undo),
        "writes": rule.reviewer_may_write,
    }
    for number, stage in zip(STAGES, rule.stages, strict=False):
        values |= _build_people_values(f"_{number}", stage) | {
            f"quorum_{number}": str(stage.quorum)
        }
    for number, step in zip(STEPS, rule.escalate, strict=False):
        values |= _build_people_values(f"_step_{number}", step)
        values |= _build_time_fields(f"step_{number}", f"step_unit_{number}", step.seconds)
    form = RuleForm(initial=values)
    parts: list[Stage | Escalation] = [*rule.stages, *rule.escalate]
    groups = {group for people in parts for group in people.groups}
    is_exact = groups <= form.groups and build_rule(RuleForm(values).read()) == rule
    return form if is_exact else None


def build_rule(values: Mapping[str, Any]) -> Rule:
    """Return the rule that the fields say. Its limits are checked when it is read as YAML."""
    stages, steps = list[Stage](), list[Escalation]()
    for number in STAGES:
        quorum, groups = values[f"quorum_{number}"], tuple(values[f"groups_{number}"] or ())
        people = _split_names(values[f"people_{number}"])
        if quorum is not None or groups or people:
            stages.append(
                Stage(quorum=1 if quorum is None else quorum, groups=groups, people=people)
            )
    for number in STEPS:
        seconds = _compute_seconds(values[f"step_{number}"], values[f"step_unit_{number}"])
        groups = tuple(values[f"groups_step_{number}"] or ())
        people = _split_names(values[f"people_step_{number}"])
        if seconds is not None or groups or people:
            steps.append(Escalation(seconds=seconds or 0, groups=groups, people=people))
    on_expiry = OnExpiry(values["on_expiry"] or OnExpiry.DENY)
    return Rule(
        **{name: values[name] for name in _PLAIN},
        tools=frozenset(_split_names(values["tools"])),
        agents=frozenset(_split_names(values["agents"])),
        risks=frozenset(values["risks"] or ()),
        risk=Risk(values["risk"]) if values["risk"] else None,
        stages=tuple(stages) or (Stage(),),
        expires_after=_compute_seconds(values["expires"], values["expires_unit"]),
        undo=values["undo"],
        escalate=tuple(steps),
        on_expiry=on_expiry,
        answer=values["answer"] if on_expiry is OnExpiry.ANSWER else None,
        reviewer_may_write=values["writes"],
    )


def _build_people_values(suffix: str, people: Stage | Escalation) -> dict[str, Any]:
    return {f"groups{suffix}": [*people.groups], f"people{suffix}": ", ".join(people.people)}


def _compute_seconds(count: int | None, unit: str) -> int | None:
    return None if count is None else count * _UNITS.get(unit, 1)


def _build_time_fields(name: str, unit_name: str, seconds: float | None) -> dict[str, str]:
    """Return a time in the largest unit that divides it."""
    if seconds is None:
        return {name: "", unit_name: "hours"}
    unit = next(unit for unit, size in _UNITS.items() if seconds % size == 0)
    return {name: str(int(seconds) // _UNITS[unit]), unit_name: unit}


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
