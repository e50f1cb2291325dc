"""Does what the engine asks of agents: describes calls, calls models and tools; every outcome is a value."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from django.db import close_old_connections, connection, transaction
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, to_json

from agents import secrets
from agents.catalogue import published
from agents.catalogue.versions import (
    Version,
    changes,
    nothing_known,
    writes,
)
from agents.errors import NotDone, NotSealed, ToolError
from agents.isolation.processes import Children
from agents.llm import pricing
from agents.llm.call import KEY_WAIT, ask
from agents.llm.messages import REPEATED
from agents.llm.outages import Outages
from agents.llm.rate_limits import Brakes
from agents.registry import Registry
from agents.sdk import ToolContext, inputs, outputs
from agents.sdk.sentences import describe_exception, sentence_of
from agents.sdk.spec import (
    DEFAULT_DEADLINE,
    FINAL_ANSWER,
    AgentSpec,
    ToolSpec,
)
from runtime.core.budgets import Rates
from runtime.core.call_options import ModelTerms
from runtime.core.digest import require_json, sha256_of
from runtime.core.documents.lost_results import has_happened, result_lost
from runtime.core.enums import Blame, EffectClass, Risk
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_RESULT, plain, size_of
from runtime.errors import InvalidInput, KeyMissing, UnknownAgent
from runtime.ports.agents import AgentFacts, CallFacts, CallRejected, TurnBoundary, VersionChange
from runtime.ports.effects import (
    Abort,
    ModelFault,
    ModelRequest,
    Outcome,
    ToolFault,
    ToolRequest,
    ToolResult,
    Unknown,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handler:
    """Implements runtime.ports.effects.EffectHandler on the agents this worker has loaded.

    `tidy` is called after each tool, in its thread, unless a transaction is still to end there.
    `versions` looks up published versions. `brakes` are the installation's rate limits, None if no other process asks
    the same providers. `outages` knows which models are out of order. `children` are the processes of isolated tools;
    without them every tool runs here.
    """

    registry: Registry
    tidy: Callable[[], None] = close_old_connections
    brakes: Brakes | None = None
    children: Children | None = None
    outages: Outages = field(default_factory=Outages)
    versions: Callable[[Iterable[str]], Mapping[str, Version]] = published.versions

    def agent(self, name: str) -> AgentFacts:
        """Raise UnknownAgent if this worker has no such agent."""
        return _facts_of(self.registry.get(name))

    def fingerprints(self) -> Mapping[str, str]:
        """The version of every agent that this worker has, by name."""
        return {name: _facts_of(spec).fingerprint for name, spec in self.registry.agents.items()}

    def skew(self, name: str, fingerprint: str) -> VersionChange | None:
        """None if this worker's agent is of that version. Raise UnknownAgent if it has no such agent."""
        spec = self.registry.get(name)
        ours = _facts_of(spec)
        if ours.fingerprint == fingerprint:
            return None
        found = self.versions([fingerprint, ours.fingerprint])
        theirs, own = found.get(fingerprint), found.get(ours.fingerprint)
        if theirs is None or theirs.agent != name:
            return VersionChange(agent=ours, changes=nothing_known(fingerprint, ours.fingerprint))
        return VersionChange(
            agent=ours,
            changes=changes(theirs.facts, spec.facts),
            older=own is not None and own.published_at < theirs.published_at,
            writes=writes(theirs.facts, spec.facts),
        )

    def receive(self, agent: str, value: Any) -> Any:
        """Read an input with the agent's Pydantic model and return it as JSON. Raise InvalidInput or UnknownAgent."""
        return inputs.read(self.registry.get(agent).input, value)

    def instruct(self, agent: str, given: Any) -> str:
        """Call the agent's function of instructions; return an empty text if its instructions are a text.

        Raise InvalidInput if it fails, or UnknownAgent.
        """
        spec = self.registry.get(agent)
        return (
            "" if spec.instruct is None else inputs.instructions(spec.instruct, spec.input, given)
        )

    def describe(self, *, agent: str, tool: str, args: Any) -> CallFacts:
        """Raise CallRejected, with a text for the model, if the call cannot be made, or KeyMissing."""
        caller = self.registry.get(agent)
        if (spec := caller.tool(tool)) is not None:
            return _tool_facts(caller, spec, args)
        if (child := caller.subagent(tool)) is not None:
            return _delegation_facts(caller, child, args)
        if tool == FINAL_ANSWER and caller.output is not None:
            raise CallRejected(plain(outputs.problem(caller, args)))
        known = ", ".join([*(t.name for t in caller.tools), *(a.name for a in caller.subagents)])
        raise CallRejected(plain(f"there is no tool named {tool}; there are: {known or 'none'}"))

    def hold(self, position: TurnBoundary) -> str:
        """Why the agent is to stop before its next model call, by its own rules; empty to go on."""
        return plain(
            self.registry.get(position.agent).holds.why(
                agent=position.agent,
                turn=position.turn,
                seconds=position.seconds,
                messages=position.messages,
            )
        )

    def begin(self, request: ModelRequest, deliver: Callable[[Outcome], None]) -> Abort:
        """Returns at once, never raises: whatever happens is an outcome, delivered once."""
        try:
            agent = self.registry.get(request.agent)
        except UnknownAgent as exc:
            deliver(ModelFault(error=str(exc), blame=Blame.REQUEST))
            return _over
        return ask(agent, request, deliver, self.brakes, self.outages)

    def perform(self, request: ToolRequest) -> Outcome:
        """Never raises: whatever happens is an outcome.

        Whatever goes wrong before the tool is called is a fault: certainly nothing happened.
        """
        try:
            tool = self.registry.get(request.agent).tool(request.tool)
            if tool is None:
                return ToolFault(error=f"this worker's {request.agent} has no tool {request.tool}")
            opened = _opened(tool, request.args)
            arguments = _arguments(tool, opened)
        except (UnknownAgent, CallRejected) as exc:
            return ToolFault(error=str(exc))
        except KeyMissing as exc:
            log.error("%s waits: %s", request.key, exc)
            return ToolFault(error=str(exc), again=True, after=KEY_WAIT, blame=Blame.WORKER)
        if tool.isolate and self.children is not None:
            return self.children.perform(tool, opened, request)
        try:
            return _call(tool, arguments, opened, request)
        finally:
            # The engine commits a transactional call together with its journal entry, on this connection.
            if tool.effect is not EffectClass.TRANSACTIONAL or not connection.in_atomic_block:
                self.tidy()


def call_here(tool: ToolSpec, opened: Any, request: ToolRequest) -> Outcome:
    """Call a tool in this process, with arguments that were checked and opened before. Never raises."""
    return _call(tool, _arguments(tool, opened), opened, request)


def _facts_of(agent: AgentSpec) -> AgentFacts:
    return _agent_facts(agent, pricing.rates_of(agent))


@lru_cache(256)
def _agent_facts(agent: AgentSpec, rates: Rates | None) -> AgentFacts:
    return AgentFacts(
        name=agent.name,
        fingerprint=agent.fingerprint,
        prompt=agent.prompt,
        plan=agent.steps,
        model=ModelTerms(retry=agent.retry, deadline=agent.deadline),
        compaction=agent.compaction.terms if agent.compaction else None,
        budget=agent.budget,
        rates=rates,
    )


def _over() -> None:
    """The call has ended already."""


def _tool_facts(caller: AgentSpec, tool: ToolSpec, args: Any) -> CallFacts:
    opened = _opened(tool, args)
    _arguments(tool, opened)
    return CallFacts(sentence=sentence_of(tool, opened), **_constant_facts(caller, tool))


@lru_cache(1024)
def _constant_facts(caller: AgentSpec, tool: ToolSpec) -> dict[str, Any]:
    """The facts of every call of this tool by this agent."""
    return {
        "tool": tool.name,
        "effect": tool.effect,
        "risk": tool.risk,
        "gated": caller.gates(tool.risk, asked=tool.approval),
        "schema": tool.schema,
        "schema_digest": tool.schema_digest,
        "deadline": tool.deadline,
        "result_schema": tool.result_schema,
        "retry": tool.retry,
        "expires_in": tool.expires_in,
        "waits": tool.waits,
    }


def _delegation_facts(caller: AgentSpec, child: AgentSpec, args: Any) -> CallFacts:
    _require_object(args)
    try:
        inputs.check(child.input_schema, args, where="arguments")
        inputs.read(child.input, args, where="arguments")
    except InvalidInput as exc:
        raise CallRejected(plain(exc.all_of_it)) from exc
    return CallFacts(
        tool=child.name,
        effect=EffectClass.IDEMPOTENT,
        risk=Risk.LOW,
        gated=caller.gates(Risk.LOW, asked=False),
        sentence=f"Hand over to {child.name}",
        schema=child.input_schema,
        schema_digest=sha256_of(child.input_schema),
        deadline=DEFAULT_DEADLINE,
        delegate=child.name,
    )


def _opened(tool: ToolSpec, args: Any) -> Any:
    try:
        return secrets.open_args(tool, args)
    except NotSealed as exc:
        raise CallRejected(str(exc)) from exc


def _require_object(args: Any) -> None:
    """Raise CallRejected with words of ours for the two ways in which there are no arguments at all."""
    if isinstance(args, dict) and REPEATED in args:
        raise CallRejected("this call is in the same reply already, and is made once")
    if isinstance(args, str):
        raise CallRejected("the arguments are not a JSON object; send the call again with one")


def _arguments(tool: ToolSpec, args: Any) -> dict[str, Any]:
    """The arguments as the function's types.

    Strict, and read from JSON: what runs is what was approved, "3" never becomes 3 on the way.
    """
    _require_object(args)
    try:
        require_json(args, "arguments")
        return tool.arguments.validate_json(to_json(args), strict=True)
    except NotJson as exc:
        raise CallRejected(plain(str(exc))) from exc
    except ValidationError as exc:
        problems = [_problem(error["loc"], error["msg"]) for error in exc.errors()]
        raise CallRejected(plain(secrets.redact(tool, args, "; ".join(problems)))) from None


def _problem(location: tuple[int | str, ...], message: str, where: str = "arguments") -> str:
    return ".".join([where, *(str(step) for step in location)]) + f": {message}"


def _call(tool: ToolSpec, arguments: dict[str, Any], opened: Any, request: ToolRequest) -> Outcome:
    """What a tool says of its secret arguments is taken out of every error."""

    def told(text: str) -> str:
        return plain(secrets.redact(tool, opened, text))

    try:
        return _run(tool, arguments, request)
    except ToolError as exc:
        return ToolFault(error=told(str(exc)) or type(exc).__name__)
    except _NotKept as exc:
        if has_happened(tool.effect):
            return ToolResult(value=result_lost(told(str(exc))))
        return ToolFault(error=told(str(exc)))
    except NotDone as exc:
        return ToolFault(
            error=told(str(exc)) or type(exc).__name__,
            again=True,
            after=_wait(exc.after),
            blame=exc.blame,
        )
    except (Exception, SystemExit) as exc:
        error = told(describe_exception(exc))
        # A traceback quotes what was raised: where there are secrets, the redacted text has to do.
        traceback = None if tool.secret_args or tool.secret_result else exc
        log.error(
            "%s did not say what became of %s: %s",
            tool.name,
            request.key,
            error,
            exc_info=traceback,
        )
        return Unknown(error=error, blame=_blame(exc))


def _blame(exc: BaseException) -> Blame:
    match exc:
        case TimeoutError():
            return Blame.TIME
        case ConnectionError():
            return Blame.NETWORK
        case _:
            return Blame.TOOL


class _NotKept(Exception):
    """The tool has run, but what it returned cannot be kept."""


def _run(tool: ToolSpec, arguments: dict[str, Any], request: ToolRequest) -> ToolResult:
    """A transactional tool leaves nothing behind unless it has a result that can be kept."""
    before = [_context(request)] if tool.wants_context else []
    if tool.effect is not EffectClass.TRANSACTIONAL:
        return _result(tool, _returned(tool, before, arguments, request.deadline))
    with transaction.atomic():
        return _result(tool, _returned(tool, before, arguments, request.deadline))


def _returned(
    tool: ToolSpec, before: list[ToolContext], arguments: dict[str, Any], deadline: float
) -> Any:
    """What the function returns; one that is async runs in a loop of its own, and is cancelled at the deadline."""
    if not tool.is_async:
        return tool.function(*before, **arguments)
    return asyncio.run(asyncio.wait_for(tool.function(*before, **arguments), deadline))


def _wait(seconds: float | None) -> float | None:
    return None if seconds is None or not 0 <= seconds < float("inf") else seconds


def _context(request: ToolRequest) -> ToolContext:
    return ToolContext(
        run=request.run,
        frame=request.frame,
        call=request.call,
        attempt=request.attempt,
        key=request.key,
        deadline=request.deadline,
        requester=request.requester,
        business_key=request.business_key,
        input=request.input,
    )


def _result(tool: ToolSpec, value: Any) -> ToolResult:
    """Raise _NotKept for what does not fit the function's annotation, and for what no journal takes."""
    try:
        value = _as_json(tool, value)
    except ValidationError as exc:
        problems = [_problem(error["loc"], error["msg"], "result") for error in exc.errors()]
        why = "" if tool.secret_result else f": {'; '.join(problems)}"
        raise _NotKept(f"{tool.name} ran, but its result is not of its type{why}") from exc
    except (NotJson, PydanticSerializationError) as exc:
        why = "" if tool.secret_result else f": {exc}"
        raise _NotKept(f"{tool.name} ran, but its result is not JSON{why}") from exc
    size = size_of(value)
    if size > MAX_RESULT:
        limit = f"{size} bytes of JSON, at most {MAX_RESULT} are kept"
        raise _NotKept(f"{tool.name} ran, but its result is {limit}")
    return ToolResult(value=secrets.seal_result(tool, value))


def _as_json(tool: ToolSpec, value: Any) -> Any:
    """Return the value as JSON if it is of the annotated type. Leave JSON as it is, with all its keys.

    Raise ValidationError, NotJson or PydanticSerializationError.
    """
    if tool.result is None:
        require_json(value, "result")
        return value
    fitting = tool.result.validate_python(value, strict=True)
    try:
        require_json(value, "result")
    except NotJson:
        value = tool.result.dump_python(fitting, mode="json", by_alias=True, warnings="error")
        require_json(value, "result")
    return value
