"""Does what the engine asks of agents: describes calls, calls models and tools; every outcome is a value."""

import json
import logging
from dataclasses import dataclass
from typing import Any, assert_never

from django.db import close_old_connections
from pydantic import ValidationError

from agents import inputs
from agents.errors import NotDone, ToolError
from agents.gateway.request import ask
from agents.limits import MAX_JSON_BYTES, json_size
from agents.registry import Registry
from agents.sdk import ToolContext
from agents.spec import DEFAULT_DEADLINE, AgentSpec, ToolSpec
from agents.wording import describe_exception, plain, sentence_of
from runtime.core.decisions import EffectClass, Risk
from runtime.core.digest import require_json, sha256_of
from runtime.core.errors import NotJson
from runtime.ports import (
    AgentFacts,
    CallFacts,
    CallRejected,
    InvalidInput,
    ModelFault,
    ModelRequest,
    Outcome,
    ToolFault,
    ToolRequest,
    ToolResult,
    Unknown,
    UnknownAgent,
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Handler:
    """Implements runtime.ports.EffectHandler on the agents this worker has loaded."""

    registry: Registry

    def agent(self, name: str) -> AgentFacts:
        """Raise UnknownAgent if this worker has no such agent."""
        agent = self.registry.get(name)
        return AgentFacts(
            name=agent.name, fingerprint=agent.fingerprint, prompt=agent.prompt, plan=agent.steps
        )

    def describe(self, *, agent: str, tool: str, args: Any) -> CallFacts:
        """Raise CallRejected, with a text for the model, if the call cannot be made."""
        caller = self.registry.get(agent)
        if (spec := caller.tool(tool)) is not None:
            return _tool_facts(spec, args)
        if (child := caller.subagent(tool)) is not None:
            return _delegation_facts(child, args)
        known = ", ".join([*(t.name for t in caller.tools), *(a.name for a in caller.subagents)])
        raise CallRejected(f"there is no tool named {tool}; there are: {known or 'none'}")

    def perform(self, request: ModelRequest | ToolRequest) -> Outcome:
        """Never raises: whatever happens is an outcome."""
        match request:
            case ModelRequest():
                return self._ask(request)
            case ToolRequest():
                return self._use(request)
            case _ as never:
                assert_never(never)

    def _ask(self, request: ModelRequest) -> Outcome:
        try:
            agent = self.registry.get(request.agent)
        except UnknownAgent as exc:
            return ModelFault(error=str(exc))
        return ask(agent, request)

    def _use(self, request: ToolRequest) -> Outcome:
        """Whatever goes wrong before the tool is called is a fault: certainly nothing happened."""
        try:
            tool = self.registry.get(request.agent).tool(request.tool)
            if tool is None:
                return ToolFault(error=f"this worker's {request.agent} has no tool {request.tool}")
            arguments = _arguments(tool, request.args)
        except (UnknownAgent, CallRejected) as exc:
            return ToolFault(error=str(exc))
        try:
            return _call(tool, arguments, request)
        finally:
            close_old_connections()


def _tool_facts(tool: ToolSpec, args: Any) -> CallFacts:
    _arguments(tool, args)
    return CallFacts(
        tool=tool.name,
        effect=tool.effect,
        risk=tool.risk,
        gated=tool.approval,
        sentence=sentence_of(tool, args),
        schema=tool.schema,
        schema_digest=tool.schema_digest,
        deadline=tool.deadline,
    )


def _delegation_facts(child: AgentSpec, args: Any) -> CallFacts:
    try:
        inputs.check(child.input_schema, args, where="arguments")
    except InvalidInput as exc:
        raise CallRejected(f"{exc.field}: {exc.detail}") from exc
    return CallFacts(
        tool=child.name,
        effect=EffectClass.IDEMPOTENT,
        risk=Risk.LOW,
        gated=False,
        sentence=f"Hand over to {child.name}",
        schema=child.input_schema,
        schema_digest=sha256_of(child.input_schema),
        deadline=DEFAULT_DEADLINE,
        delegate=child.name,
    )


def _arguments(tool: ToolSpec, args: Any) -> dict[str, Any]:
    """The arguments as the function's types.

    Strict, and read from JSON: what runs is what was approved, "3" never becomes 3 on the way.
    """
    try:
        require_json(args, "arguments")
        return tool.arguments.validate_json(json.dumps(args), strict=True)
    except NotJson as exc:
        raise CallRejected(plain(str(exc))) from exc
    except ValidationError as exc:
        problems = [_problem(error["loc"], error["msg"]) for error in exc.errors()]
        raise CallRejected(plain("; ".join(problems))) from exc


def _problem(location: tuple[int | str, ...], message: str) -> str:
    return ".".join(["arguments", *(str(step) for step in location)]) + f": {message}"


def _call(tool: ToolSpec, arguments: dict[str, Any], request: ToolRequest) -> Outcome:
    before = [_context(request)] if tool.wants_context else []
    try:
        value = tool.function(*before, **arguments)
    except (ToolError, NotDone) as exc:
        return ToolFault(error=plain(str(exc)) or type(exc).__name__)
    except (Exception, SystemExit) as exc:
        log.exception("%s did not say what became of %s", tool.name, request.key)
        return Unknown(error=describe_exception(exc))
    return _result(tool, value)


def _context(request: ToolRequest) -> ToolContext:
    return ToolContext(
        run=request.run,
        frame=request.frame,
        call=request.call,
        attempt=request.attempt,
        key=request.key,
        deadline=request.deadline,
    )


def _result(tool: ToolSpec, value: Any) -> Outcome:
    """The tool has run: a result that cannot be kept is a failed tool, not a lost one."""
    try:
        require_json(value, "result")
    except NotJson as exc:
        return ToolFault(error=plain(f"{tool.name} ran, but its result is not JSON: {exc}"))
    size = json_size(value)
    if size > MAX_JSON_BYTES:
        limit = f"{size} bytes of JSON, at most {MAX_JSON_BYTES} are kept"
        return ToolFault(error=f"{tool.name} ran, but its result is {limit}")
    return ToolResult(value=value)
