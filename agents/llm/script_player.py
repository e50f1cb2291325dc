"""Runs an agent's script in place of a model, without a provider's client."""

from dataclasses import replace
from functools import lru_cache

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from pydantic_ai.usage import RequestUsage

from agents.llm.messages import tools_of
from agents.llm.token_counts import CHARACTERS, estimate_request, estimate_tokens
from agents.sdk.spec import AgentSpec
from runtime.ports.effects import ModelAnswer, ModelRequest


def run_script(
    agent: AgentSpec, conversation: list[ModelMessage], instructions: str = ""
) -> tuple[ModelResponse, RequestUsage]:
    """Return the script's reply and its tokens: those it states, or an estimate. Code uses no tokens."""
    if agent.model is None:
        raise TypeError(f"{agent.name} has no script")
    info = _script_arguments(agent)
    reply = agent.model(
        conversation, replace(info, instructions=instructions) if instructions else info
    )
    if not isinstance(reply, ModelResponse):
        raise TypeError(f"the script replied with a {type(reply).__name__}")
    usage = reply.usage
    if not usage.has_values() and not agent.is_code:
        usage = RequestUsage(
            input_tokens=estimate_request(conversation), output_tokens=estimate_tokens([reply])
        )
    return reply, usage


def script_summary(agent: AgentSpec, request: ModelRequest) -> ModelAnswer:
    """Sum up the memory of a run in place of its script: with the end of what the earlier runs said."""
    texts = [one["text"] for one in request.messages[0].get("memory", ()) if one["text"]]
    said = " ".join(texts)[-request.memory_tokens * CHARACTERS :] or "Nothing is left of it."
    return ModelAnswer(reply=None, text=said, model=agent.model_name, cost=0)


@lru_cache(256)
def _script_arguments(agent: AgentSpec) -> AgentInfo:
    """Return the arguments of a script beside the conversation."""
    tools = tools_of(agent)
    return AgentInfo(
        function_tools=tools.function_tools,
        allow_text_output=tools.allow_text_output,
        output_tools=tools.output_tools,
        model_settings=None,
        model_request_parameters=tools,
        instructions=agent.instructions,
    )
