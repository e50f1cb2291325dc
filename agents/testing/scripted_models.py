"""Models with the replies that a test lists, and agents with such a model."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo

from agents.sdk.scripts import Reply, Script, Turn, own_answer, script
from agents.sdk.spec import AgentSpec

ScriptedReply = Reply | Callable[[Turn], Reply]
ScriptedModel = Script | Sequence[ScriptedReply]


class NoReplyLeft(Exception):
    """The model was called more often than the test listed replies."""


class NoScript(Exception):
    """The agent names only providers' models, which a test does not call."""


def replies(*steps: ScriptedReply) -> Script:
    """Return a model that gives these replies in order. A function among them makes its reply.

    The conversation itself shows which reply is next, so a turn that is repeated after a crash gets the same reply
    again.
    """

    def model(messages: list[ModelMessage], info: AgentInfo) -> Reply:
        if (answer := own_answer(messages)) is not None:
            return answer
        number = sum(isinstance(message, ModelResponse) for message in messages)
        if number >= len(steps):
            raise NoReplyLeft(f"the test wrote {len(steps)} replies, and turn {number + 1} began")
        step = steps[number]
        return step if isinstance(step, ModelResponse) else script(step)(messages, info)

    return model


def with_models(agent: AgentSpec, models: Mapping[str, ScriptedModel]) -> AgentSpec:
    """Return the agent with these models, by name, for itself and its sub-agents."""
    children = tuple(with_models(child, models) for child in agent.subagents)
    model = models.get(agent.name, agent.model)
    if model is None:
        raise NoScript(f"{agent.name} has no script: give the test one, as drive(…, models={{…}})")
    return replace(agent, subagents=children, model=model if callable(model) else replies(*model))
