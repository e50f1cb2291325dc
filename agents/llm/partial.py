"""The received part of a streamed reply: as the journal keeps it, and every few seconds for the next worker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from pydantic_ai.messages import ModelResponse

from agents.llm.pricing import cost_of
from agents.llm.token_counts import CHARACTERS, complete_usage, counts_of
from agents.sdk.spec import AgentSpec
from runtime.core.limits import MAX_ERROR, plain
from runtime.keyring import held
from runtime.ports.effects import PartialReply


def received(agent: AgentSpec, response: ModelResponse, model: str, request: int) -> PartialReply:
    """Return the received part of a reply. Its tokens are estimated; its usage is at least what the provider said.

    `request` is an estimate of the tokens of its request, for a provider that has not told them yet.
    """
    if not (response.parts or response.provider_details or response.usage.has_values()):
        return PartialReply(model=model)
    used = complete_usage(response, request, is_partial=True)
    text = response.text or ""
    return PartialReply(
        text=kept(agent, plain(text)),
        tokens=-(-len(text) // CHARACTERS),
        usage=counts_of(used),
        cost=cost_of(agent, replace(response, usage=used)),
        model=model,
    )


def kept(agent: AgentSpec, text: str) -> str:
    """Return a part of a reply as it is stored: sealed if it may say what a held text says."""
    return held.sealed_text(text, MAX_ERROR) if agent.seals_texts else text


@asynccontextmanager
async def kept_every(
    seconds: float, part: Callable[[], PartialReply], keep: Callable[[PartialReply], None] | None
) -> AsyncIterator[None]:
    """Hand on the received part of a reply every few seconds while the block runs, if it has grown."""
    task = None if keep is None else asyncio.ensure_future(_keep_on(seconds, part, keep))
    try:
        yield
    finally:
        if task is not None:
            task.cancel()


async def _keep_on(
    seconds: float, part: Callable[[], PartialReply], keep: Callable[[PartialReply], None]
) -> None:
    tokens = 0
    while True:
        await asyncio.sleep(seconds)
        reply = part()
        if reply.tokens > tokens:
            tokens = reply.tokens
            keep(reply)
