"""The received part of a streamed reply: as the journal keeps it, and every few seconds for the next worker."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace

from pydantic_ai.messages import ModelResponse

from agents.llm.pricing import cost_of
from agents.llm.script_player import CHARACTERS
from agents.sdk.spec import AgentSpec
from runtime.core.limits import MAX_ERROR, plain
from runtime.keyring import held
from runtime.ports.effects import PartialReply


def received(agent: AgentSpec, response: ModelResponse, model: str) -> PartialReply:
    """Return the received part of a reply. Its tokens are estimated; its usage is at least what the provider said."""
    text, used = response.text or "", response.usage
    tokens = -(-len(text) // CHARACTERS)
    used = replace(used, output_tokens=max(used.output_tokens, tokens))
    if not (used.input_tokens or used.output_tokens):
        return PartialReply(model=model)
    return PartialReply(
        text=kept(agent, plain(text)),
        tokens=tokens,
        usage={"input_tokens": used.input_tokens, "output_tokens": used.output_tokens},
        cost=cost_of(agent, replace(response, usage=used)),
        model=model,
    )


def kept(agent: AgentSpec, text: str) -> str:
    """Return a part of a reply as it is stored: sealed if it may say what a held text says."""
    return held.sealed_text(text, MAX_ERROR) if agent.seals_texts else text


@asynccontextmanager
async def kept_every(
    seconds: float,
    part: Callable[[], PartialReply],
    keep: Callable[[PartialReply], None] | None,
) -> AsyncIterator[None]:
    """Hand on the received part of a reply every few seconds while the block runs, if it has grown."""
    if keep is None:
        yield
        return
    task = asyncio.ensure_future(_keep_on(seconds, part, keep))
    try:
        yield
    finally:
        task.cancel()


async def _keep_on(
    seconds: float, part: Callable[[], PartialReply], keep: Callable[[PartialReply], None]
) -> None:
    known = 0
    while True:
        await asyncio.sleep(seconds)
        found = part()
        if found.tokens > known:
            known = found.tokens
            keep(found)
