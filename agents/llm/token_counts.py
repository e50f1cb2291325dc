"""Estimates tokens that no provider reported: of scripts, and of replies."""

from collections.abc import Iterable
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart
from pydantic_ai.usage import RequestUsage

from runtime.core.limits import MAX_INTEGER

CHARACTERS = 4  # of a token, on average
OVERHEAD = 50  # tokens that a provider adds to every conversation, on average


def estimate_request(conversation: Iterable[ModelMessage]) -> int:
    """Estimate the tokens of a request."""
    return OVERHEAD + estimate_tokens(conversation)


def estimate_tokens(messages: Iterable[ModelMessage]) -> int:
    """Estimate the tokens of all texts, thoughts and arguments in these messages."""
    length = sum(len(_text(part)) for message in messages for part in message.parts)
    return -(-length // CHARACTERS)


def complete_usage(reply: ModelResponse, request: int, *, is_partial: bool = False) -> RequestUsage:
    """Return the usage of a reply: estimates where the provider reported none. `request` is that of its request.

    Of a partial reply the provider may have counted only the beginning.
    """
    sent, output = reply.usage.input_tokens, reply.usage.output_tokens
    if is_partial or output <= 0:
        output = max(output, estimate_tokens([reply]))
    return replace(
        reply.usage,
        input_tokens=min(sent if sent > 0 else request, MAX_INTEGER),
        output_tokens=min(output, MAX_INTEGER),
        unmeasured_requests=0,
    )


def _text(part: object) -> str:
    content = part.args if isinstance(part, ToolCallPart) else getattr(part, "content", "")
    return content if isinstance(content, str) else str(content)
