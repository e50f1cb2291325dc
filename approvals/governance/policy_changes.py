"""Changes of the policy: propose a version, confirm it, withdraw it.

A version takes effect by the rule of two admins.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from approvals import clock
from approvals.errors import PolicyBroken, PolicyRefused
from approvals.governance import policies
from approvals.governance.policies import FIRST_NUMBER, LOG, Act, PolicyVersion
from approvals.people import accounts
from approvals.reads import deciders
from approvals.requests import schemas
from approvals.rights.second_admin import SecondAdmin, may_administer
from approvals.rules import judge
from approvals.rules import policy_text as texts
from approvals.rules.policy import OnExpiry, Policy, Rule
from approvals.rules.roles import DECIDING, POLICY_VERSION
from approvals.signed.audit import log_change
from runtime.core.values.expressions import ExpressionError
from runtime.core.values.json_schema import may_have
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor

FIELD = "text"
ANSWER = "answer"  # the argument of the call by which an agent gives a held answer


def check(text: object) -> Policy:
    """Read a draft. Raise InvalidInput naming `text`, with line and field of the first error; it has the others too."""
    if not isinstance(text, str):
        raise InvalidInput(FIELD, "must be the policy as YAML")
    rules, problems = texts.read(text)
    errors = [f"has an error in {problem}" for problem in problems]
    all_tools = wiring.catalogue().tools()
    for number, rule in enumerate(rules, 1):
        errors += () if rule is None else _problems(rule, number, all_tools)
    policy = Policy(version=POLICY_VERSION, rules=tuple(rule for rule in rules if rule is not None))
    impossible = None if errors else deciders.impossible(policy, deciders.deciders())
    if impossible is not None:
        errors.append(f"cannot be met: {impossible}")
    if errors:
        first, *other_errors = (InvalidInput(FIELD, problem) for problem in errors)
        raise InvalidInput(FIELD, first.detail, other_errors)
    return policy


def _problems(rule: Rule, number: int, all_tools: frozenset[str]) -> Iterator[str]:
    """List the faults of a rule for the agents, tools and groups of this installation."""
    yield from _problems_of_condition(rule, number, all_tools)
    yield from (
        f"names the tool {tool} in the rule {rule.name}, which no agent has"
        for tool in sorted(rule.tools - all_tools)
    )
    yield from (
        f"names the agent {agent} in the rule {rule.name}, which was never published"
        for agent in sorted(rule.agents - set(wiring.catalogue().names()))
    )
    groups = {name for stage in rule.stages for name in stage.groups}
    groups |= {name for step in rule.escalate for name in step.groups}
    yield from (
        f"names the group {group} in the rule {rule.name}, which does not exist"
        for group in sorted(groups - {*DECIDING, *accounts.named_groups()})
    )
    yield from _problems_of_answer(rule)


def _problems_of_condition(rule: Rule, number: int, all_tools: frozenset[str]) -> Iterator[str]:
    """Say why the condition would fail at each call: it is none, or no tool has an argument that it names."""
    label = f"has an error in rules[{number}].when, of the rule {rule.name}"
    try:
        if rule.when:
            judge.check_new_condition(rule.when)
    except ExpressionError as exc:
        yield f"{label}: {exc}"
        return
    schemas = wiring.catalogue().argument_schemas(rule.tools or all_tools)
    for path in judge.condition_paths(rule.when):
        # Without match.tool the rule is also about answers, which are calls of their own.
        is_answer = not rule.tools and path[0] == ANSWER
        if schemas and not is_answer and not any(may_have(schema, path) for schema in schemas):
            tools = ", ".join(sorted(rule.tools)) or "any tool"
            yield f"{label}: names args.{'.'.join(path)}, which is no argument of {tools}"


def _problems_of_answer(rule: Rule) -> Iterator[str]:
    """Name the rule's tools that could not return its answer."""
    if rule.on_expiry is not OnExpiry.ANSWER:
        return
    for tool in sorted(rule.tools):
        for schema in wiring.catalogue().result_schemas(tool):
            try:
                schemas.check_result(rule.answer, schema)
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
    with _changing(actor):
        numbers = [version.number for version in policies.read_versions()]
        number = max(numbers, default=FIRST_NUMBER - 1) + 1
        row = LOG.append(Act.PROPOSED, by=actor, number=number, text=text)
        if alone_from := SecondAdmin(author=actor).alone_from(row.at):
            LOG.append(Act.SCHEDULED, by=actor, number=number, effective_at=alone_from)
        log_change(actor, f"proposed version {number} of the policy")
    return number


def confirm(number: int, *, actor: str | None) -> None:
    """Put a version in force. None is the command line, which may always confirm.

    Raises PolicyRefused if the version does not wait, if its rules cannot be met any more, or if the actor is its
    author or not independent of them.
    """
    with _changing(actor):
        version = _waiting(number)
        if actor is not None and not SecondAdmin(author=version.author).is_independent(actor):
            raise PolicyRefused(
                f"Another admin must confirm version {number}: one who did not write it, did not get their own"
                " right from its author, and did not give the author theirs."
            )
        try:
            check(version.text)
        except InvalidInput as exc:
            raise PolicyRefused(f"Version {number} {exc.detail}") from exc
        LOG.append(Act.CONFIRMED, by=actor, number=number, effective_at=clock.now())
        log_change(actor, f"confirmed version {number} of the policy")


def withdraw(number: int, *, actor: str | None) -> None:
    """Withdraw a version before it is in force. Any admin may. Raises PolicyRefused."""
    with _changing(actor):
        _waiting(number)
        LOG.append(Act.WITHDRAWN, by=actor, number=number)
        log_change(actor, f"withdrew version {number} of the policy")


def _waiting(number: int) -> PolicyVersion:
    version = {version.number: version for version in policies.read_versions()}.get(number)
    if version is None:
        raise PolicyRefused(f"There is no version {number} of the policy.")
    if not version.waits(clock.now()):
        raise PolicyRefused(f"Version {number} does not wait for a confirmation any more.")
    return version


@contextmanager
def _changing(actor: str | None) -> Iterator[None]:
    """Run the block in a transaction that holds the lock for changes of the policy. Raises PolicyRefused."""
    if actor is not None and not may_administer(Actor(person=actor)):
        raise PolicyRefused(f"{actor} may not change the policy.")
    try:
        with LOG.locked():
            yield
    except PolicyBroken as exc:
        raise PolicyRefused(f"The stored policy does not verify: {exc}.") from exc
    policies.forget()
