"""Turns the answer of an agent that holds its answers into a call, and seals texts of a model that has a held one.

A draft, a thought or a summary can say what the held text will say. Only the released text is stored as it is, and
an answer that its agent does not hold.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic_ai.messages import ModelResponse, TextPart, ThinkingPart, ToolCallPart
from pydantic_core import to_jsonable_python

from agents import secrets
from agents.sdk.answers import ARGUMENT, TOGETHER
from agents.sdk.spec import FINAL_ANSWER, AgentSpec
from runtime.core.run.events import Proposal
from runtime.keyring import sealing

_DETAILS = ""  # the name for `provider_details`, which no tool has


def proposals(
    agent: AgentSpec, calls: Sequence[Proposal], text: str, output: dict[str, Any] | None
) -> tuple[Proposal, ...]:
    """Return the calls of a reply, where the answer is a call. One that does not fit is refused with its reason.

    `calls` are those to make, `output` the typed result in a reply without any.
    """
    assert agent.answer is not None  # only such an agent holds its answers
    seal = partial(secrets.seal_args, agent.answer)
    if not calls:
        args = {ARGUMENT: text if output is None else output}
        return (Proposal(tool=FINAL_ANSWER, args=seal(args)),)
    is_alone = len(calls) == 1  # an answer beside other calls is marked, and refused
    return tuple(
        replace(call, args=seal(call.args if is_alone else {TOGETHER: call.args}))
        if call.tool == FINAL_ANSWER
        else call
        for call in calls
    )


def seal_texts(calls: Sequence[Proposal]) -> tuple[Proposal, ...]:
    """Seal a text in the place of a typed answer, which is refused: it may be any text of the model."""
    return tuple(
        replace(call, args=sealing.seal_args(call.tool, call.args))
        if isinstance(call.args, str)
        else call
        for call in calls
    )


def seal_response(
    agent: AgentSpec, response: ModelResponse, text: str, max_length: int | None, *, is_answer: bool
) -> tuple[ModelResponse, str]:
    """Seal the texts, thoughts, secret arguments and details of a reply. `max_length` is as in `sealing.seal_text`.

    A part that is the whole text gets the same token as the text, so that the reply need not repeat it. The text of a
    reply that `is_answer` stays as it is.
    """
    sealed_text = text if is_answer else sealing.seal_text(text, max_length)

    def seal_part(part: Any) -> Any:
        match part:
            case TextPart() if is_answer:
                return part
            case TextPart() if part.content == text:
                return replace(part, content=sealed_text)
            case TextPart() | ThinkingPart():
                return replace(part, content=sealing.seal_text(part.content))
            case _:
                return seal_call(agent, part)

    parts = [seal_part(_with_details(part, _seal_details)) for part in response.parts]
    return replace(_with_details(response, _seal_details), parts=parts), sealed_text


def seal_call(agent: AgentSpec, part: Any) -> Any:
    """Return a part of a reply; if it is a call, with all arguments sealed as received where one may be secret."""
    if not isinstance(part, ToolCallPart):
        return part
    if (tool := agent.tool(part.tool_name)) is not None:
        return replace(part, args=secrets.seal_reply(tool, part.args))
    if is_misspelt(agent, part.tool_name) or sealing.is_token(part.args):
        return replace(part, args=sealing.seal_args(part.tool_name, part.args))
    return part


def repeats_token(response: ModelResponse) -> bool:
    """Tell whether a model wrote a sealed value, which it would get back opened: a person may have read it in Postgres.

    It is sealed once more, so it is opened to what the model wrote.
    """
    parts = (getattr(part, "content", getattr(part, "args", None)) for part in response.parts)
    return any(map(sealing.is_token, [response.text or "", *parts]))


def _seal_details(name: str, details: Any) -> dict[str, str]:
    """Seal details as the JSON that is stored: a provider's client puts times in them."""
    return sealing.seal_args(name, to_jsonable_python(details))


def open_details(message: Any) -> Any:
    """Return a reply, or a part of one, with the details that its provider sent."""
    return _with_details(message, sealing.open_args)


def _with_details(message: Any, change: Callable[[str, Any], Any]) -> Any:
    """Change the details of a reply or a part: a provider can repeat there what the model thought."""
    details = getattr(message, "provider_details", None)
    changed = change(_DETAILS, details) if details else details
    return message if changed is details else replace(message, provider_details=changed)


def is_misspelt(agent: AgentSpec, name: str) -> bool:
    """Tell whether a called name is none of an agent with held texts: the arguments may be one of them."""
    is_known = agent.tool(name) or agent.subagent(name) or (name == FINAL_ANSWER and agent.output)
    return agent.seals_texts and not is_known


def open_part(part: Any) -> Any:
    """Return a part of a reply as the provider sent it."""
    if isinstance(part, ToolCallPart):
        args = sealing.open_args(part.tool_name, part.args)
        return part if args is part.args else replace(part, args=args)
    if not isinstance(part, TextPart | ThinkingPart):
        return part
    content = sealing.open_text(part.content)
    return part if content is part.content else replace(part, content=content)
