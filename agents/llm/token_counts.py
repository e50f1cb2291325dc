"""Counts the tokens of a call: as its provider reports them, or estimated where that is missing or implausible.

A script's tokens are estimated too. A token has 4 bytes of text on average, never less than one, and hardly ever more
than 16. So a count is believed within a quarter of the estimate and 4 times as much. The tokens of a reply may be up
to the longest reply of any model, because thoughts are paid for and need not be sent.
"""

from collections.abc import Iterable, Sequence

from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, ToolCallPart
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from runtime.core.values.limits import MAX_INTEGER

CHARACTERS = 4  # of a token, on average; those beyond ASCII count as their bytes
OVERHEAD = 50  # tokens that a provider adds to every conversation, on average
PART_OVERHEAD = 4  # tokens that it adds to each part
SPREAD = 4  # how far a count may be from its estimate, as a factor
LONGEST_REPLY = 131_072  # tokens

_CACHED = ("cache_read_tokens", "cache_write_tokens", "cache_write_1h_tokens")
_ESTIMATED = "estimated_tokens"


def estimate_request(
    conversation: Sequence[ModelMessage], tools: Iterable[ToolDefinition] = ()
) -> int:
    """Estimate the tokens of a request."""
    texts = [f"{tool.name}{tool.description}{tool.parameters_json_schema}" for tool in tools]
    texts += [
        message.instructions or ""
        for message in conversation[-1:]
        if isinstance(message, ModelRequest)
    ]
    parts = sum(len(message.parts) for message in conversation)
    return OVERHEAD + PART_OVERHEAD * parts + estimate_tokens(conversation) + _tokens(texts)


def estimate_tokens(messages: Iterable[ModelMessage]) -> int:
    """Estimate the tokens of all texts, thoughts and calls in these messages."""
    return _tokens(_text(part) for message in messages for part in message.parts)


def complete_usage(reply: ModelResponse, request: int, *, is_partial: bool = False) -> RequestUsage:
    """Return the usage of a reply: estimates where the provider's count is missing or implausible.

    `request` is the estimate of its request. Of a partial reply the provider may have counted only the beginning.
    """
    usage, refusal = reply.usage, (reply.provider_details or {}).get("refusal")
    estimate = estimate_tokens([reply]) + _tokens([str(refusal or "")])
    sent, output = usage.input_tokens, usage.output_tokens
    cached = {name: getattr(usage, name) for name in _CACHED}
    details = {name: n for name, n in usage.details.items() if _is_count(n, MAX_INTEGER)}
    estimated = 0
    if not (
        _is_count(sent, SPREAD * request, request)
        and all(_is_count(count, sent) for count in cached.values())
        and usage.cache_read_tokens + usage.cache_write_tokens <= sent
    ):
        sent, cached, estimated = request, {}, request
    most = max(SPREAD * estimate, LONGEST_REPLY)
    if not _is_count(output, most, estimate) or (is_partial and output < estimate):
        output, estimated = estimate, estimated + estimate
    if estimated:
        details[_ESTIMATED] = estimated
    return RequestUsage(input_tokens=sent, output_tokens=output, details=details, **cached)


def counts_of(usage: RequestUsage) -> dict[str, int]:
    """Return a usage as an event has it. Of its tokens, `estimated_tokens` are no counts of the provider."""
    counts = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
    estimated = usage.details.get(_ESTIMATED, 0)
    return {**counts, _ESTIMATED: estimated} if estimated else counts


def _is_count(value: object, most: int, estimate: int = 0) -> bool:
    return type(value) is int and estimate <= SPREAD * value and 0 <= value <= most


def _tokens(texts: Iterable[str]) -> int:
    return -(-sum(len(text.encode(errors="surrogatepass")) for text in texts) // CHARACTERS)


def _text(part: object) -> str:
    if isinstance(part, ToolCallPart):
        return f"{part.tool_name}{part.args or ''}"
    return str(getattr(part, "content", ""))
