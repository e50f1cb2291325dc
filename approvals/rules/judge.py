"""Judges a call by a policy: whether it waits for people, at which risk, and what their decision needs. Pure.

A policy is never less strict than the tool: it can add an approval and raise a risk, not the other way round. A
condition that fails counts as the strictest rule, because it is unknown which rule the call would have met.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from approvals.rules.policy import MAX_QUORUM, Demands, OnExpiry, Policy, Rule, Stage
from runtime.core.values import expressions
from runtime.core.values.enums import RISKS, Risk

FACTS = ("tool", "agent", "risk", "effect", "requester", "path", "args")
_LARGE = "args"
_SAMPLES = {**dict.fromkeys(FACTS, "text"), "path": ["text"], "args": {}}


def check_condition(text: str) -> None:
    """Raise ExpressionError unless the text is a condition within the bounds."""
    expressions.check(text, FACTS, _LARGE)


def check_new_condition(text: str) -> None:
    """Do the same, and raise ExpressionError for one that cannot be true or false. A stored one may be older."""
    expressions.check_condition(text, FACTS, _LARGE, _SAMPLES)


def list_condition_paths(text: str) -> list[tuple[str, ...]]:
    """Return the paths of the arguments that a condition reads."""
    return expressions.list_paths(text, _LARGE)


def is_condition_met(text: str, facts: Mapping[str, Any]) -> bool:
    """Evaluate a condition. Raise ExpressionError if it fails for these facts, or is not true or false."""
    return expressions.evaluate_condition(text, facts, FACTS, _LARGE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts of a call. `risk` and `gated` are the tool's own; `path` goes from the root agent to the tool."""

    tool: str
    path: tuple[str, ...]
    args: Any
    risk: Risk
    gated: bool
    effect: str
    requester: str

    @property
    def agent(self) -> str:
        """The agent that makes the call."""
        return self.path[-2] if len(self.path) > 1 else ""

    @property
    def values(self) -> dict[str, Any]:
        """The facts that a condition reads, by the names in FACTS."""
        values = {name: getattr(self, name) for name in FACTS}
        return {**values, "risk": str(self.risk), "path": list(self.path)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The result: `demands` is None if the default policy applies, `expires_after` None if the tool's own time does.

    `extends_by` is the time of the steps of escalation, which begin after it.
    """

    approval: bool
    risk: Risk
    demands: Demands | None = None
    expires_after: float | None = None
    extends_by: float = 0.0


def judge(of: Policy, facts: Facts) -> Judgement:
    """Evaluate a call by the first rule that matches it."""
    for rule in of.rules:
        conditions = (
            (rule.tools, facts.tool),
            (rule.agents, facts.agent),
            (rule.risks, str(facts.risk)),
        )
        if any(names and name not in names for names, name in conditions):
            continue
        try:
            if not rule.when or is_condition_met(rule.when, facts.values):
                return _apply_rule(rule, facts)
        except expressions.ExpressionError as exc:
            return _apply_rule(
                build_strictest_rule(of), facts, f"the condition of {rule.name} failed: {exc}"
            )
    return Judgement(approval=facts.gated, risk=facts.risk)


def without_policy(error: str) -> Judgement:
    """Return the most that a policy can demand: what the policy demands is unknown, because it cannot be read."""
    stages = (Stage(quorum=MAX_QUORUM),)
    return Judgement(
        approval=True,
        risk=RISKS[-1],
        demands=Demands(rule="the policy cannot be read", stages=stages, reason=True, failed=error),
    )


def build_strictest_rule(of: Policy) -> Rule:
    """Return a rule with the strictest of each setting in the policy, and the stages that need the most people.

    It gives no answer, escalates to no people and lets no reviewer write.
    """
    times = [rule.expires_after for rule in of.rules if rule.expires_after is not None]
    windows = [rule.undo for rule in of.rules if rule.undo is not None]
    endings = {rule.on_expiry for rule in of.rules}
    hardest = max(of.rules, key=lambda rule: sum(stage.quorum for stage in rule.stages))
    return Rule(
        name="the strictest settings of all rules",
        approval=True,
        risk=RISKS[-1],
        stages=hardest.stages,
        reason=any(rule.reason for rule in of.rules),
        step_up=any(rule.step_up for rule in of.rules),
        expires_after=min(times, default=None),
        undo=max(windows, default=None),
        on_expiry=OnExpiry.FAIL if OnExpiry.FAIL in endings else OnExpiry.DENY,
    )


def _apply_rule(rule: Rule, facts: Facts, failed: str = "") -> Judgement:
    risk = facts.risk if rule.risk is None else max(facts.risk, rule.risk, key=RISKS.index)
    return Judgement(
        approval=rule.approval or facts.gated,
        risk=risk,
        demands=Demands(
            rule=rule.name,
            stages=rule.stages,
            reason=rule.reason,
            failed=failed,
            escalate=rule.escalate,
            on_expiry=rule.on_expiry,
            answer=rule.answer,
            undo=rule.undo,
            reviewer_may_write=rule.reviewer_may_write,
            step_up=rule.step_up,
        ),
        expires_after=rule.expires_after,
        extends_by=sum(step.seconds for step in rule.escalate),
    )
