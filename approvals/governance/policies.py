"""The versions of the policy, from the signed acts on them: proposed, confirmed, withdrawn; and the one in force.

A missing or changed act is an error, never a weaker policy: then calls wait for people. A process asks the database at
most once a second whether there is another act. An approval keeps the version and the demands that it was opened with.

A version takes effect by the rule of two admins. `simulate` says what a draft would have changed in recent requests.
"""

import json
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from approvals import clock
from approvals.errors import PolicyBroken, PolicyRefused
from approvals.models import OF_CALL, Approval, PolicyAct
from approvals.people import accounts
from approvals.reads import deciders
from approvals.requests import snapshot
from approvals.rights.access import SecondAdmin, may_administer
from approvals.rules import judge as evaluation
from approvals.rules import policy_text
from approvals.rules.judge import Facts, Judgement
from approvals.rules.policy import (
    DECIDING,
    POLICY_VERSION,
    Demands,
    OnExpiry,
    Policy,
    Rule,
    decode_demands,
)
from approvals.signed.audit import log_change
from approvals.signed.rows import SignedLog
from runtime.core.values.enums import Risk
from runtime.core.values.expressions import ExpressionError
from runtime.core.values.json_schema import may_have
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import ReviewSnapshot

Act = PolicyAct.PolicyChange

RECENT_SECONDS = 1.0
FIRST_NUMBER = 2  # version 1 is the default policy, which has no act
FIELD = "text"
ANSWER = "answer"  # the argument of the call by which an agent gives a held answer
SIMULATED_DAYS = 30
MAX_SIMULATED = 1000  # newest requests
MAX_EXAMPLES = 20
MAX_SIMULATION_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyVersion:
    """A version with its acts. `effective_at` is None until another admin confirms it, and if it was withdrawn."""

    number: int
    text: str
    author: str | None
    proposed_at: datetime
    effective_at: datetime | None = None
    confirmed_by: str | None = None
    withdrawn: bool = False
    order: int = 0  # the act by which it takes effect

    def waits(self, at: datetime) -> bool:
        """Tell whether the version is not in force yet and may still be."""
        return not self.withdrawn and (self.effective_at is None or self.effective_at > at)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChange:
    """A request that the draft would have treated differently. `before` and `after` describe its demands."""

    approval_id: UUID
    sentence: str
    created_at: datetime
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The result: of `tried` requests `changed` differ. `all` says that there were no more."""

    tried: int
    changed: int
    examples: tuple[SimulatedChange, ...]
    all: bool


def read_versions() -> tuple[PolicyVersion, ...]:
    """Read and verify every act. Raises PolicyBroken."""
    return tuple(LOG.read().values())


def find_version_in_force(
    versions: tuple[PolicyVersion, ...], at: datetime
) -> PolicyVersion | None:
    """Return the version in force at this time, the one that was put in force last; None for the default policy.

    So a version that waited for its day does not replace one that was confirmed meanwhile.
    """
    past = [
        version
        for version in versions
        if not version.withdrawn and version.effective_at is not None and version.effective_at <= at
    ]
    return max(past, key=lambda version: version.order, default=None)


def name_state(version: PolicyVersion, now: PolicyVersion | None, at: datetime) -> str:
    """Say what a version is at this time, where `now` is in force: "in force", "withdrawn", "waiting" or "replaced"."""
    if version == now:
        return "in force"
    if version.withdrawn:
        return "withdrawn"
    return "waiting" if version.waits(at) else "replaced"


def _apply(versions: dict[int, PolicyVersion], row: PolicyAct) -> dict[int, PolicyVersion]:
    before = versions.get(row.number)
    if row.act == Act.PROPOSED and before is None:
        versions[row.number] = PolicyVersion(
            number=row.number, text=row.text, author=row.by, proposed_at=row.at
        )
        return versions
    if row.act == Act.PROPOSED or before is None:
        raise PolicyBroken(f"act {row.seq} on the policy is about no proposed version")
    withdrawn = row.act == Act.WITHDRAWN
    versions[row.number] = replace(
        before,
        effective_at=None if withdrawn else row.effective_at,
        confirmed_by=row.by if row.act == Act.CONFIRMED else before.confirmed_by,
        withdrawn=withdrawn,
        order=row.seq,
    )
    return versions


LOG = SignedLog(PolicyAct, noun="the policy", start=dict, apply=_apply, broken=PolicyBroken)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CachedPolicy:
    checked: float  # monotonic
    policy: Policy


_lock = threading.Lock()
_cached: _CachedPolicy | None = None


def read_current() -> Policy:
    """Return the policy in force. Raises PolicyBroken if its rows are not the signed ones."""
    global _cached
    cached = _cached
    if cached is not None and time.monotonic() - cached.checked < RECENT_SECONDS:
        return cached.policy
    checked = time.monotonic()
    # Without the lock: a dead connection must hold up its own thread only.
    rows, at = LOG.read_recent_rows()
    version = find_version_in_force(tuple(LOG.fold(rows, {}).values()), at)
    with _lock:
        _cached = _CachedPolicy(checked=checked, policy=_build_policy(version, _cached))
        return _cached.policy


def judge(facts: Facts) -> tuple[str, Judgement]:
    """Evaluate a call by the policy in force, and return its version too. Raises PolicyBroken."""
    policy = read_current()
    return policy.version, evaluation.judge(policy, facts)


def forget() -> None:
    """Ask the database at the next use."""
    global _cached
    _cached = None
    LOG.forget()


def select_policy_at(versions: tuple[PolicyVersion, ...], at: datetime) -> Policy:
    """Return the policy in force at this time among these versions."""
    return _build_policy(find_version_in_force(versions, at), None)


def _build_policy(version: PolicyVersion | None, cached: _CachedPolicy | None) -> Policy:
    if version is None:
        return Policy()
    if cached is not None and cached.policy.version == str(version.number):
        return cached.policy
    return decode_policy(version)


def decode_policy(version: PolicyVersion) -> Policy:
    """Read the rules of a version. Raises PolicyBroken for one that today's rules cannot read."""
    try:
        return policy_text.parse(version.text, str(version.number))
    except policy_text.PolicyInvalid as exc:  # it was valid when it was saved
        raise PolicyBroken(f"version {version.number} of the policy cannot be read: {exc}") from exc


def build_facts(call: Approval | ReviewSnapshot, args: Any, risk: Risk) -> Facts:
    """Return the facts of the call with these arguments, at this risk of its tool."""
    return Facts(
        tool=call.tool,
        path=tuple(call.path),
        args=args,
        risk=risk,
        gated=True,
        effect=str(call.effect),
        requester=call.requester,
    )


def check(text: object) -> Policy:
    """Read a draft. Raise InvalidInput naming `text`, with line and field of the first error; it has the others too."""
    if not isinstance(text, str):
        raise InvalidInput(FIELD, "must be the policy as YAML")
    rules, problems = policy_text.read(text)
    errors = [f"has an error in {problem}" for problem in problems]
    all_tools = wiring.resolve_catalogue().tools()
    for number, rule in enumerate(rules, 1):
        errors += () if rule is None else _list_rule_faults(rule, number, all_tools)
    policy = Policy(version=POLICY_VERSION, rules=tuple(rule for rule in rules if rule is not None))
    impossible = None if errors else deciders.find_impossible_rule(policy, deciders.list_deciders())
    if impossible is not None:
        errors.append(f"cannot be met: {impossible}")
    if errors:
        first, *other_errors = (InvalidInput(FIELD, problem) for problem in errors)
        raise InvalidInput(FIELD, first.detail, other_errors)
    return policy


def _list_rule_faults(rule: Rule, number: int, all_tools: frozenset[str]) -> Iterator[str]:
    """List the faults of a rule for the agents, tools and groups of this installation."""
    yield from _list_condition_faults(rule, number, all_tools)
    yield from (
        f"names the tool {tool} in the rule {rule.name}, which no agent has"
        for tool in sorted(rule.tools - all_tools)
    )
    yield from (
        f"names the agent {agent} in the rule {rule.name}, which was never published"
        for agent in sorted(rule.agents - set(wiring.resolve_catalogue().list_names()))
    )
    groups = {name for stage in rule.stages for name in stage.groups}
    groups |= {name for step in rule.escalate for name in step.groups}
    yield from (
        f"names the group {group} in the rule {rule.name}, which does not exist"
        for group in sorted(groups - {*DECIDING, *accounts.list_named_groups()})
    )
    yield from _list_answer_faults(rule)


def _list_condition_faults(rule: Rule, number: int, all_tools: frozenset[str]) -> Iterator[str]:
    """Say why the condition would fail at each call: it is none, or no tool has an argument that it names."""
    label = f"has an error in rules[{number}].when, of the rule {rule.name}"
    try:
        if rule.when:
            evaluation.check_new_condition(rule.when)
    except ExpressionError as exc:
        yield f"{label}: {exc}"
        return
    snapshot = wiring.resolve_catalogue().list_argument_schemas(rule.tools or all_tools)
    for path in evaluation.list_condition_paths(rule.when):
        # Without match.tool the rule is also about answers, which are calls of their own.
        is_answer = not rule.tools and path[0] == ANSWER
        if snapshot and not is_answer and not any(may_have(schema, path) for schema in snapshot):
            tools = ", ".join(sorted(rule.tools)) or "any tool"
            yield f"{label}: names args.{'.'.join(path)}, which is no argument of {tools}"


def _list_answer_faults(rule: Rule) -> Iterator[str]:
    """Name the rule's tools that could not return its answer."""
    if rule.on_expiry is not OnExpiry.ANSWER:
        return
    for tool in sorted(rule.tools):
        for schema in wiring.resolve_catalogue().list_result_schemas(tool):
            try:
                snapshot.check_result(rule.answer, schema)
            except InvalidInput as exc:
                yield (
                    f"has an answer in the rule {rule.name} that {tool} could not return: {exc.field} {exc.detail}"
                )


def propose(text: object, *, actor: str | None) -> int:
    """Save a version, which then waits for another admin, and return its number. None is the command line.

    Raises InvalidInput naming `text`, and PolicyRefused for a person without the right.
    """
    check(text)
    assert isinstance(text, str)
    with _lock_policy(actor):
        numbers = [version.number for version in read_versions()]
        number = max(numbers, default=FIRST_NUMBER - 1) + 1
        row = LOG.append(Act.PROPOSED, by=actor, number=number, text=text)
        if alone_from := SecondAdmin(author=actor).compute_lone_start(row.at):
            LOG.append(Act.SCHEDULED, by=actor, number=number, effective_at=alone_from)
        log_change(actor, f"proposed version {number} of the policy")
    return number


def confirm(number: int, *, actor: str | None) -> None:
    """Put a version in force. None is the command line, which may always confirm.

    Raises PolicyRefused if the version does not wait, if its rules cannot be met any more, or if the actor is its
    author or not independent of them.
    """
    with _lock_policy(actor):
        version = _require_waiting(number)
        if actor is not None and not SecondAdmin(author=version.author).is_independent(actor):
            raise PolicyRefused(
                f"Another admin must confirm version {number}: one who did not write it, did not get their own"
                " right from its author, and did not give the author theirs."
            )
        try:
            check(version.text)
        except InvalidInput as exc:
            raise PolicyRefused(f"Version {number} {exc.detail}") from exc
        LOG.append(Act.CONFIRMED, by=actor, number=number, effective_at=clock.read_time())
        log_change(actor, f"confirmed version {number} of the policy")


def withdraw(number: int, *, actor: str | None) -> None:
    """Withdraw a version before it is in force. Any admin may. Raises PolicyRefused."""
    with _lock_policy(actor):
        _require_waiting(number)
        LOG.append(Act.WITHDRAWN, by=actor, number=number)
        log_change(actor, f"withdrew version {number} of the policy")


def simulate(draft: Policy) -> Simulation:
    """Evaluate the newest requests for approval of the last 30 days by a draft, for at most MAX_SIMULATION_SECONDS.

    A call that no person was asked about has no request, so a rule that would ask about it changes nothing here.
    """
    ends = time.monotonic() + MAX_SIMULATION_SECONDS
    rows = Approval.objects.filter(
        OF_CALL,
        created_at__gt=clock.read_time() - timedelta(days=SIMULATED_DAYS),
        removed_at=None,
    ).order_by("-created_at")[: MAX_SIMULATED + 1]
    tried, changes = 0, list[SimulatedChange]()
    for approval in rows:
        if tried == MAX_SIMULATED or time.monotonic() > ends:
            return _build_simulation(tried, changes, all=False)
        tried += 1
        try:
            before = _needs(decode_demands(approval.rule), approval.risk)
            call = build_facts(approval, json.loads(approval.args), Risk(approval.risk))
        except (ValueError, KeyError, TypeError):
            continue  # a row that cannot be read
        judgement = evaluation.judge(draft, call)
        after = _needs(judgement.demands, judgement.risk)
        if before != after:
            change = SimulatedChange(
                approval_id=approval.id,
                sentence=approval.sentence,
                created_at=approval.created_at,
                before=before,
                after=after,
            )
            changes.append(change)
    return _build_simulation(tried, changes, all=True)


def _require_waiting(number: int) -> PolicyVersion:
    version = {version.number: version for version in read_versions()}.get(number)
    if version is None:
        raise PolicyRefused(f"There is no version {number} of the policy.")
    if not version.waits(clock.read_time()):
        raise PolicyRefused(f"Version {number} does not wait for a confirmation any more.")
    return version


@contextmanager
def _lock_policy(actor: str | None) -> Iterator[None]:
    """Run the block in a transaction that holds the lock for changes of the policy. Raises PolicyRefused."""
    if actor is not None and not may_administer(Actor(person=actor)):
        raise PolicyRefused(f"{actor} may not change the policy.")
    try:
        with LOG.hold_lock():
            yield
    except PolicyBroken as exc:
        raise PolicyRefused(f"The stored policy does not verify: {exc}.") from exc
    forget()


def _build_simulation(tried: int, changes: list[SimulatedChange], *, all: bool) -> Simulation:
    return Simulation(
        tried=tried, changed=len(changes), examples=tuple(changes[:MAX_EXAMPLES]), all=all
    )


def _needs(demands: Demands | None, risk: str) -> str:
    """Say what a request needs: how many people, of which stages, a reason, and what follows if no person decides."""
    if demands is None:
        return f"1 approval, {risk} risk"
    stages = ", then ".join(
        f"{stage.quorum} of {', '.join(_strip_prefixes(stage.keys))}" for stage in demands.stages
    )
    is_single = demands.quorum == 1 and not (demands.stages[0].groups or demands.stages[0].people)
    people = "1 approval" if is_single else f"approvals: {stages}"
    extras = ", with a reason" if demands.reason else ""
    extras += ", with a fresh second factor" if demands.step_up else ""
    extras += ", reviewers may write to the run" if demands.reviewer_may_write else ""
    for step in demands.escalate:
        extras += f", later also {', '.join(_strip_prefixes(step.keys))}"
    match demands.on_expiry:
        case OnExpiry.FAIL:
            extras += ", expiry fails the run"
        case OnExpiry.ANSWER:
            extras += ", expiry gives an answer"
    return f"{people}, {risk} risk{extras}"


def _strip_prefixes(keys: Iterable[str]) -> Iterable[str]:
    return (key.partition(":")[2] for key in keys)
