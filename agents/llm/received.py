"""Reads what a provider sent: the reply as it is stored, and its text, calls and answer for the core."""

import json
from dataclasses import replace
from typing import Any

from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.usage import RequestUsage

from agents import secrets
from agents.llm import held_answers, replies
from agents.llm.pricing import cost_of
from agents.llm.token_counts import counts_of
from agents.sdk import outputs
from agents.sdk.scripts.conversation_texts import REPEATED
from agents.sdk.spec import AgentSpec
from runtime.core.continuation import GivenReply
from runtime.core.digest import require_json, same
from runtime.core.errors import NotJson
from runtime.core.events import Proposal
from runtime.core.limits import MAX_ANSWER
from runtime.keyring import held
from runtime.ports.effects import ModelAnswer


def from_provider(
    agent: AgentSpec,
    response: ModelResponse,
    *,
    model: str = "",
    summary: bool = False,
    usage: RequestUsage | None = None,
) -> ModelAnswer:
    """Return the reply of `model` as JSON with the fields the core needs, without checking that it can be journaled.

    A `summary` is text, even if the agent's result is typed. `usage` counts in the place of the reply's own.
    """
    used = usage or response.usage
    text = response.text or ""
    output, proposals = None, _proposals(agent, response)
    if not summary:
        output, proposals = outputs.read(agent, proposals, text)
    kept = response
    if agent.answer is not None and not summary:
        output, proposals = None, held_answers.proposals(agent, proposals, text, output)
    elif agent.seals_texts and not calls_in(response):
        proposals = held_answers.without_text(proposals)
    if agent.seals_texts:
        most = MAX_ANSWER if summary else None
        is_answer = not (summary or proposals or output is not None)
        kept, text = held_answers.sealed(agent, kept, text, most, is_answer=is_answer)
    elif agent.keeps_secrets:
        kept = replace(response, parts=[_sealed(agent, part) for part in response.parts])
    reply, output_kept = replies.stored(kept, text, proposals, output)
    if agent.model is not None and model == agent.model_name:  # a script is no model
        reply.pop("model_name", None)
    return ModelAnswer(
        reply=reply,
        text=text,
        calls=proposals,
        output=output,
        output_kept=output_kept,
        at_once=agent.at_once if proposals else 0,
        usage=counts_of(used),
        cost=cost_of(agent, response),
        model=model,
    )


def from_person(agent: AgentSpec, given: GivenReply) -> ModelAnswer:
    """Read the reply that a person gave in a fork as one of the model. Raise as secrets.open_args."""
    # A text without calls is the answer, which is not sealed again.
    is_kept = agent.seals_texts and bool(given.calls)
    text = held.open_text(given.text) if is_kept else given.text
    parts: list[Any] = [TextPart(content=text)] if text else []
    for call in given.calls:
        tool = agent.tool(call.tool)
        args = call.args if tool is None else secrets.open_args(tool, call.args)
        parts.append(ToolCallPart(tool_name=call.tool, args=args))
    return replace(from_provider(agent, ModelResponse(parts=parts)), cost=0)


def _proposals(agent: AgentSpec, response: ModelResponse) -> tuple[Proposal, ...]:
    """Return the calls in order, not by id: some providers give every call of a reply the same id."""
    proposals: list[Proposal] = []
    seen: list[tuple[str, Any]] = []
    for part in calls_in(response):
        tool, args = agent.tool(part.tool_name), args_of(part)
        proposed = args
        if tool is not None and tool.secret_args and tool is not agent.answer:
            # The engine finds calls that repeat each other, but sealed arguments never look equal.
            of_it = (n for n, (name, _) in enumerate(seen) if name == part.tool_name)
            twin = next((n for n in of_it if same(seen[n][1], args)), None)
            args = secrets.seal_args(tool, args) if twin is None else {REPEATED: twin}
        elif held_answers.is_misspelt(agent, part.tool_name):
            args = held.seal_all(part.tool_name, args)
        seen.append((part.tool_name, proposed))
        proposals.append(Proposal(tool=part.tool_name, args=args))
    return tuple(proposals)


def _sealed(agent: AgentSpec, part: Any) -> Any:
    """Return a part of a reply; if it calls a tool with secrets, with all arguments sealed as received."""
    tool = agent.tool(part.tool_name) if isinstance(part, ToolCallPart) else None
    if tool is None:
        return part
    return replace(part, args=secrets.seal_reply(tool, part.args))


def calls_in(response: ModelResponse) -> list[ToolCallPart]:
    """Return the calls of a reply, in their order."""
    return [part for part in response.parts if isinstance(part, ToolCallPart)]


def args_of(part: ToolCallPart) -> Any:
    """Return the proposed arguments. Text that is not JSON stays text, which admission refuses."""
    if not isinstance(part.args, str):
        return part.args or {}
    try:
        args = json.loads(part.args or "{}")
        require_json(args)
    except (ValueError, RecursionError, NotJson):
        return part.args
    return args
