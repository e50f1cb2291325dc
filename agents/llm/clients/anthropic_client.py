"""Anthropic's model for servers that refuse to stream: it requests the whole reply and returns it as a stream."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai.messages import ModelMessage
from pydantic_ai.models import CompletedStreamedResponse, ModelRequestParameters, StreamedResponse
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.settings import ModelSettings


class PlainAnthropicModel(AnthropicModel):
    """A model that requests each reply in one piece."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
        run_context: Any = None,
    ) -> AsyncIterator[StreamedResponse]:
        """Request the whole reply, and yield it as a stream that has ended."""
        reply = await self.request(messages, model_settings, model_request_parameters)
        yield CompletedStreamedResponse(reply, model_request_parameters=model_request_parameters)
