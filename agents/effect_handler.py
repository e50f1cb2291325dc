"""Implements the engine's port to agents: describes calls, calls models and tools, returns every outcome."""

import inspect
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from django.db import close_old_connections, connection

from agents import secrets, tool_calls
from agents.catalogue import published
from agents.catalogue.versions import (
    PublishedVersion,
    build_unknown_change,
    list_changes,
    list_new_writes,
)
from agents.isolation.processes import Children
from agents.llm import providers
from agents.llm.call import KEY_WAIT, call_model
from agents.llm.providers import Outages, is_scripted
from agents.llm.rate_limits import RateLimits
from agents.registry import Registry
from agents.sdk import conditions, inputs
from agents.sdk.definitions import ANSWER_ARGUMENT, ANSWERED_TOGETHER
from agents.sdk.spec import DEFAULT_DEADLINE, FINAL_ANSWER, NEVER_HELD, AgentSpec, ToolSpec
from agents.tool_calls import build_context, call, open_arguments, read_arguments, require_object
from runtime.core.run.events import PinnedPrompt
from runtime.core.values.budgets import Rates
from runtime.core.values.call_options import ModelOptions
from runtime.core.values.enums import EFFECT_CLASSES, CallPreview, EffectClass, FailureCause, Risk
from runtime.core.values.json_values import hash_value
from runtime.core.values.limits import MAX_INSTRUCTIONS
from runtime.core.values.texts import clean_text, fill_placeholders, find_placeholders
from runtime.errors import InvalidInput, KeyMissing, UnknownAgent
from runtime.keyring import sealing
from runtime.ports import agents, effects

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AgentEffects:
    """Implements the port EffectHandler with the agents that this worker has loaded.

    `close_connections` is called after each tool, in its thread, except inside an open transaction. `versions`
    looks up published versions. `rate_limits` are those of the installation; None if no other process calls the
    same providers. `outages` knows which models are out of order. `children` are the processes of isolated tools;
    None runs every tool here. `prompts` finds versions of prompts; without it, agents use the texts in the code.
    """

    registry: Registry
    close_connections: Callable[[], None] = close_old_connections
    rate_limits: RateLimits | None = None
    children: Children | None = None
    outages: Outages = field(default_factory=Outages)
    versions: Callable[[Iterable[str]], Mapping[str, PublishedVersion]] = published.read_versions
    prompts: agents.Prompts | None = None

    def agent(self, name: str) -> agents.AgentInfo:
        """Return an agent's definition. Raise UnknownAgent if this worker does not have it."""
        return _describe_agent(self.registry.get(name))

    def read_fingerprints(self) -> Mapping[str, str]:
        """Return the version of every agent that this worker has, by name."""
        return {name: _compute_fingerprint(spec) for name, spec in self.registry.agents.items()}

    def compare_version(self, name: str, fingerprint: str) -> agents.VersionChange | None:
        """Return how this worker's agent differs from that version, or None. Raise UnknownAgent."""
        spec = self.registry.get(name)
        if _compute_fingerprint(spec) == fingerprint:
            return None
        ours = _describe_agent(spec)
        versions = self.versions([fingerprint, ours.fingerprint])
        their_version, our_version = versions.get(fingerprint), versions.get(ours.fingerprint)
        if their_version is None or their_version.agent != name:
            return agents.VersionChange(
                agent=ours, changes=build_unknown_change(fingerprint, ours.fingerprint)
            )
        return agents.VersionChange(
            agent=ours,
            changes=list_changes(their_version.definition, spec.definition),
            older=our_version is not None and our_version.published_at < their_version.published_at,
            writes=list_new_writes(their_version.definition, spec.definition),
        )

    def receive(self, agent: str, value: Any) -> Any:
        """Read an input with the agent's Pydantic model and return it as JSON. Raise InvalidInput or UnknownAgent."""
        return inputs.read(self.registry.get(agent).input, value)

    def instruct(
        self, agent: str, input: Any, *, at: datetime, number: int | None = None
    ) -> agents.Instructions:
        """Call the agent's function of instructions, or fill in its prompt as it was in production `at`.

        `number` names another version of the prompt. The text is empty if its instructions are a text. Raise
        InvalidInput if it cannot be made, or UnknownAgent.
        """
        spec = self.registry.get(agent)
        if spec.prompt_name:
            return fill_version(spec, input, self.prompts, at, number)
        if spec.instruct is None:
            return agents.Instructions()
        return agents.Instructions(text=inputs.make_instructions(spec.instruct, spec.input, input))

    def describe(self, *, agent: str, tool: str, args: Any) -> agents.CallInfo:
        """Describe a proposed call. Raise KeyMissing, or CallRejected with a text for the model."""
        caller = self.registry.get(agent)
        if tool == FINAL_ANSWER and (reason := _find_answer_problem(caller, args)):
            raise agents.CallRejected(reason)
        if (spec := caller.tool(tool)) is not None:
            unsealed = open_arguments(spec, args)
            arguments = read_arguments(spec, unsealed)
            call_info = agents.CallInfo(
                sentence=conditions.fill_sentence(spec, unsealed),
                **_build_shared_fields(caller, spec),
            )
            if not spec.is_judged:
                return call_info
            judged = conditions.judge(spec, arguments)
            return replace(
                call_info,
                risk=judged.risk,
                gated=caller.requires_approval(judged.risk, by_tool=judged.approval),
                judged=True,
                problem=clean_text(secrets.redact(spec, unsealed, judged.problem)),
            )
        if (child := caller.subagent(tool)) is not None:
            require_object(args)
            try:
                inputs.check(child.input_schema, args, root="arguments")
                inputs.read(child.input, args, root="arguments")
            except InvalidInput as exc:
                raise agents.CallRejected(clean_text(exc.all_of_it)) from exc
            return agents.CallInfo(
                tool=child.name,
                effect=EffectClass.IDEMPOTENT,
                risk=Risk.LOW,
                gated=caller.requires_approval(Risk.LOW, by_tool=False),
                sentence=f"Hand over to {child.name}",
                schema=child.input_schema,
                schema_digest=hash_value(child.input_schema),
                deadline=DEFAULT_DEADLINE,
                result_schema=child.output_schema or {"type": "string"},
                delegate=child.name,
            )
        names = ", ".join([*(t.name for t in caller.tools), *(a.name for a in caller.subagents)])
        raise agents.CallRejected(
            clean_text(f"there is no tool named {tool}; there are: {names or 'none'}")
        )

    def hold_reason(self, position: agents.TurnBoundary) -> str:
        """Return why the agent's rules stop it before its next model call, or an empty text."""
        if (holds := self.registry.get(position.agent).holds) is NEVER_HELD:
            return ""
        return clean_text(
            conditions.run_code(
                holds.reason_to_stop,
                agent=position.agent,
                turn=position.turn,
                seconds=position.seconds,
                messages=position.messages,
            )
        )

    def is_scripted(self, agent: str) -> bool:
        """Say whether a script replies for the agent. Raise UnknownAgent."""
        return is_scripted(self.registry.get(agent))

    def start_model_call(
        self,
        request: effects.ModelRequest,
        deliver: Callable[[effects.Outcome], None],
        keep: effects.Keep | None = None,
    ) -> effects.Abort:
        """Start a model call. Return at once and never raise: one outcome is delivered in any case."""
        try:
            agent = self.registry.get(request.agent)
        except UnknownAgent as exc:
            deliver(effects.ModelFailure(error=str(exc), cause=FailureCause.REQUEST))
            return lambda: None  # it has ended
        return call_model(agent, request, deliver, self.rate_limits, self.outages, keep)

    def preview(self, request: effects.PreviewRequest) -> CallPreview:
        """Preview a call, and check its precondition. Never raise."""
        try:
            tool = self.registry.get(request.of.agent).tool(request.tool)
            if tool is None:
                return CallPreview(missing=f"this worker's agent has no tool {request.tool}")
            unsealed = open_arguments(tool, request.of.args)
            arguments = read_arguments(tool, unsealed)
        except (UnknownAgent, agents.CallRejected, KeyMissing) as exc:
            return CallPreview(missing=clean_text(str(exc)))
        context = replace(build_context(request.of), deadline=request.deadline)
        try:
            return tool_calls.preview(tool, arguments, unsealed, context)
        finally:
            if not connection.in_atomic_block:
                self.close_connections()

    def perform(self, request: effects.ToolRequest) -> effects.Outcome:
        """Call a tool and return its outcome. Never raise.

        An error before the call is a ToolFailure: nothing happened outside.
        """
        try:
            tool = self.registry.get(request.agent).tool(request.tool)
            if tool is None:
                return effects.ToolFailure(
                    error=f"this worker's {request.agent} has no tool {request.tool}"
                )
            unsealed = open_arguments(tool, request.args)
            arguments = read_arguments(tool, unsealed)
        except (UnknownAgent, agents.CallRejected) as exc:
            return effects.ToolFailure(error=str(exc))
        except KeyMissing as exc:
            log.error("Call %s: waits: %s", request.key, exc)
            return effects.ToolFailure(
                error=str(exc), retryable=True, retry_after=KEY_WAIT, cause=FailureCause.WORKER
            )
        if tool.isolate and self.children is not None:
            return self.children.perform(tool, unsealed, request)
        try:
            return call(tool, arguments, unsealed, request)
        finally:
            # The engine commits a transactional call together with its journal entry, on this connection.
            if not EFFECT_CLASSES[tool.effect].commits_with_entry or not connection.in_atomic_block:
                self.close_connections()


def fill_version(
    agent: AgentSpec,
    input: Any,
    prompts: agents.Prompts | None,
    at: datetime,
    version: int | None = None,
) -> agents.Instructions:
    """Fill in the version that was in production `at`, or the text in the code if none was. `version` names another.

    A text in the code without variables needs no copy in each run, as other instructions. Raise InvalidInput.
    """
    name = agent.prompt_name
    if prompts is None or version == 0:
        stored_version = None
    elif version is None:
        stored_version = prompts.find_in_production(name, at)
    else:
        stored_version = prompts.version(name, version)
    number, text = (
        (0, agent.instructions)
        if stored_version is None
        else (stored_version.number, stored_version.text)
    )
    pinned = PinnedPrompt(name=name, number=number, digest=hash_value(text), at=at)
    if number == 0 and not find_placeholders(text):
        return agents.Instructions(pinned=pinned)
    return agents.Instructions(text=fill(name, text, input), pinned=pinned)


def fill(name: str, text: str, input: Any) -> str:
    """Fill in the fields of an input. Raise InvalidInput for a variable that it lacks, or a text that is too long."""
    try:
        instructions = fill_placeholders(text, input if isinstance(input, dict) else {})
    except KeyError as exc:
        raise InvalidInput(
            "instructions", f"the prompt {name} names {{{exc.args[0]}}}, which the input lacks"
        ) from exc
    if len(instructions) > MAX_INSTRUCTIONS:
        raise InvalidInput(
            "instructions", f"of the prompt {name} have more than {MAX_INSTRUCTIONS} characters"
        )
    return inspect.cleandoc(instructions)


@lru_cache(256)
def _compute_fingerprint(agent: AgentSpec) -> str:
    return agent.fingerprint


def _describe_agent(agent: AgentSpec) -> agents.AgentInfo:
    return _build_agent_info(agent, providers.find_rates(agent))


@lru_cache(256)
def _build_agent_info(agent: AgentSpec, rates: Rates | None) -> agents.AgentInfo:
    return agents.AgentInfo(
        name=agent.name,
        fingerprint=agent.fingerprint,
        prompt=agent.prompt,
        plan=agent.steps,
        model=ModelOptions(retry=agent.retry, deadline=agent.deadline),
        compaction=agent.compaction.terms if agent.compaction else None,
        budget=agent.budget,
        rates=rates,
        items=agent.items,
    )


def _find_answer_problem(caller: AgentSpec, args: Any) -> str:
    """Say why arguments of `final_answer` are not an answer of the agent, or return an empty text."""
    if caller.answer is None:
        answer = sealing.open_args(FINAL_ANSWER, args)
        return "" if caller.output is None else clean_text(inputs.explain_result(caller, answer))
    unsealed = open_arguments(caller.answer, args)
    if isinstance(unsealed, dict) and set(unsealed) == {ANSWERED_TOGETHER}:
        return inputs.NOT_ALONE
    if caller.output is None or (isinstance(unsealed, dict) and set(unsealed) == {ANSWER_ARGUMENT}):
        return ""
    return clean_text(
        secrets.redact(caller.answer, unsealed, inputs.explain_result(caller, unsealed))
    )


@lru_cache(1024)
def _build_shared_fields(caller: AgentSpec, tool: ToolSpec) -> dict[str, Any]:
    """Return the fields that all calls of this tool by this agent share; for a judged one the strictest."""
    judged = tool.is_judged
    return {
        "tool": tool.name,
        "effect": tool.effect,
        "risk": Risk.HIGH if judged else tool.risk,
        "gated": judged or caller.approval_of(tool),
        "schema": tool.schema,
        "schema_digest": tool.schema_digest,
        "deadline": tool.deadline,
        "result_schema": tool.result_schema,
        "retry": tool.retry,
        "expires_in": tool.expires_in,
        "waits": tool.waits,
        "question": tool.question,
        "plan": tool.plan,
        "answers": tool is caller.answer,
        "tells": tool.holds_text and tool is not caller.answer,
        "previews": tool.preview is not None or tool.precondition is not None,
    }
