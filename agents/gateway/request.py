"""One model call, from a frame's messages to an answer or a fault."""

import logging

from pydantic_ai.direct import model_request
from pydantic_ai.models.function import FunctionModel

from agents.gateway import loop
from agents.gateway.messages import from_provider, to_provider, tools_of
from agents.spec import AgentSpec
from agents.wording import describe_exception
from runtime.ports import ModelAnswer, ModelFault, ModelRequest

log = logging.getLogger(__name__)


def ask(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | ModelFault:
    """Ask the agent's model what to do next, within the request's deadline. Never raises."""
    try:
        response = loop.run(
            model_request(
                FunctionModel(agent.model, model_name=agent.model_name),
                to_provider(agent, request.messages),
                model_request_parameters=tools_of(agent),
            ),
            deadline=request.deadline,
        )
        return from_provider(response)
    except TimeoutError:
        return ModelFault(error=f"the model did not answer within {request.deadline:g} s")
    except Exception as exc:
        log.exception("model call of %s in run %s failed", agent.name, request.run)
        return ModelFault(error=describe_exception(exc))
