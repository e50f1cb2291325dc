"""Reads who can decide by the rules of a policy now: for each tool, and where too few people are left for a rule.

A run's requester cannot decide in it, which is not counted here: it depends on the run, and the request warns.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace

from approvals.reads import deciders
from approvals.rules import policy_sentences, tally
from approvals.rules.policy import DECIDING, MAX_QUORUM, PERSON, Demands, Policy, Rule, Stage
from approvals.rules.policy_text import MAX_STAGES
from runtime.ports import wiring

MOST = MAX_QUORUM * MAX_STAGES  # people that a rule can need
NAMED = 20  # people of a stage whom a page names
OTHER_CALLS = Rule(name="every other call")  # the default policy


class Deciders:
    """The people who can decide now and matter to a policy: everyone whom it names, and of a group as many as suffice.

    A person who is away cannot decide, but their deputy can in their place. `without` leaves out one person.
    """

    def __init__(self, policy: Policy) -> None:
        self.rules = (*policy.rules, OTHER_CALLS)
        keys = {key for rule in self.rules for stage in _widen_stages(rule) for key in stage.keys}
        person_keys = frozenset(key for key in keys if key.startswith(PERSON))
        read = [
            deciders.list_first_deciders(frozenset({key}), MOST + 1)
            for key in sorted(keys - person_keys)
        ]
        read += [deciders.list_first_deciders(person_keys, len(person_keys))] if person_keys else []
        people = {person.person: person for chunk in read for person in chunk}
        away = {absent.person for person in people.values() for absent in person.stands_for}
        self.people = {
            name: person.groups
            for name, person in people.items()
            # Who can decide now: they have the right, and its cooling-off period is over.
            if person.cooling_until is None
            and not DECIDING.isdisjoint(person.groups)
            and name not in away
        }
        self.stand_ins = {
            name: [(absent.person, absent.groups) for absent in people[name].stands_for]
            for name in self.people
        }
        self._eligible = dict[Stage, tuple[str, ...]]()

    def problem(self, rule: Rule) -> str:
        """Say why this rule cannot be met now; empty if it can."""
        if not self._can_meet(_widen_stages(rule)):
            return "too few people can meet it now"
        return (
            "" if self._can_meet(rule.stages) else "too few people can meet it before it escalates"
        )

    def find_problems(self) -> dict[str, str]:
        """Return the problem of each rule that cannot be met now, by its name."""
        problems = {rule.name: self.problem(rule) for rule in self.rules}
        return {name: problem for name, problem in problems.items() if problem}

    def needed(self) -> dict[str, list[str]]:
        """Return for each person the rules that too few people could meet without them.

        Only a stage with no more people than the rule needs can lack one.
        """
        rules_of = dict[str, list[str]]()
        for rule in self.rules:
            stages = _widen_stages(rule)
            if not self._can_meet(stages):
                continue
            total = sum(stage.quorum for stage in stages)
            scarce = {
                name
                for stage in stages
                if len(names := self.eligible(stage)) <= total
                for name in names
            }
            for name in scarce:
                if not self._can_meet(stages, without=name):
                    rules_of.setdefault(name, []).append(rule.name)
        return rules_of

    def eligible(self, stage: Stage) -> tuple[str, ...]:
        """Name the people who can vote in a stage now, for themselves or for a person who is away."""
        if stage not in self._eligible:
            self._eligible[stage] = tuple(
                name
                for name in sorted(self.people)
                if any(
                    stage.is_eligible(*voter)
                    for voter in ((name, self.people[name]), *self.stand_ins[name])
                )
            )
        return self._eligible[stage]

    def _can_meet(self, stages: Collection[Stage], without: str = "") -> bool:
        people = {name: groups for name, groups in self.people.items() if name != without}
        return tally.can_complete(tuple(stages), {}, people, self.stand_ins)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageDeciders:
    """A stage with the people who can decide in it now; with `has_more` there are others, who are not named."""

    quorum: int
    people: tuple[str, ...]
    has_more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleDeciders:
    """A rule that can apply to a tool. `asks` is "always", "never" or "by its arguments"; `calls` says to which calls.

    `problem` says why too few people can decide.
    """

    name: str
    calls: str
    asks: str
    stages: tuple[StageDeciders, ...]
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolDeciders:
    """Who decides the calls of a tool by each rule that can apply, in their order. `risk` is None if it depends."""

    tool: str
    risk: str | None
    agents: tuple[str, ...]
    rules: tuple[RuleDeciders, ...]

    @property
    def asks(self) -> bool:
        """Whether a person can be asked about a call."""
        return any(rule.asks != "never" for rule in self.rules)


def list_tool_deciders(policy: Policy) -> tuple[ToolDeciders, ...]:
    """List the tools of all published agents by name. Agents for which the same holds share a row."""
    people = Deciders(policy)
    agents_of = dict[ToolDeciders, list[str]]()
    for tool in wiring.resolve_catalogue().list_published_tools():
        rules = list[RuleDeciders]()
        for rule in (*policy.rules, OTHER_CALLS):
            if (
                (rule.risks and "risk" not in tool.depends and tool.risk not in rule.risks)
                or (rule.tools and tool.name not in rule.tools)
                or (rule.agents and tool.agent not in rule.agents)
            ):
                continue
            demands = Demands(rule=rule.name, stages=rule.stages)
            stages = (demands.demand_one_person() if tool.question else demands).stages
            asks = "always" if rule.approval or tool.gated or tool.question else "never"
            if not rule.approval and "approval" in tool.depends:
                asks = "by its arguments"
            rules.append(
                RuleDeciders(
                    name=rule.name,
                    calls=policy_sentences.describe_condition(rule.when).strip(),
                    asks=asks,
                    stages=tuple(
                        StageDeciders(
                            quorum=stage.quorum, people=names[:NAMED], has_more=len(names) > NAMED
                        )
                        for stage, names in ((stage, people.eligible(stage)) for stage in stages)
                    ),
                    problem=people.problem(replace(rule, stages=stages)),
                )
            )
            if not rule.when and not (rule.risks and "risk" in tool.depends):
                break  # it applies to each call
        row = ToolDeciders(
            tool=tool.name,
            risk=None if "risk" in tool.depends else str(tool.risk),
            agents=(),
            rules=tuple(rules),
        )
        agents_of.setdefault(row, []).append(tool.agent)
    rows = [replace(row, agents=tuple(agents)) for row, agents in agents_of.items()]
    return tuple(sorted(rows, key=lambda row: (row.tool, row.agents)))


def _widen_stages(rule: Rule) -> tuple[Stage, ...]:
    """Return the stages with the people of all steps of escalation."""
    return tuple(
        replace(
            stage,
            groups=(*stage.groups, *(name for step in rule.escalate for name in step.groups)),
            people=(*stage.people, *(name for step in rule.escalate for name in step.people)),
        )
        if stage.groups or stage.people
        else stage
        for stage in rule.stages
    )
