"""One model call, from a frame's messages to an answer or a fault."""

import logging

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelResponse
from pydantic_ai.settings import ModelSettings

from agents.errors import NotSealed
from agents.gateway import loop, provider
from agents.gateway.faults import fault_of, too_slow
from agents.gateway.messages import from_provider, to_provider, tools_of
from agents.spec import AgentSpec
from agents.wording import describe_exception, plain
from runtime.errors import KeyMissing
from runtime.ports import ModelAnswer, ModelFault, ModelRequest

log = logging.getLogger(__name__)

# A key that is missing is put back by people: wait as long as the engine does between attempts.
KEY_WAIT = 60.0


def ask(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | ModelFault:
    """Ask the agent's model what to do next, within the request's deadline. Never raises."""
    model = provider.name_of(agent)
    try:
        return from_provider(agent, _exchange(agent, request))
    except KeyMissing as exc:
        log.error("model call of %s in run %s waits: %s", agent.name, request.run, exc)
        return ModelFault(error=str(exc), again=True, after=KEY_WAIT)
    except NotSealed as exc:
        return ModelFault(error=plain(str(exc)))
    except TimeoutError:
        return too_slow(model, request.deadline)
    except Exception as exc:
        if provider.is_scripted():
            log.exception("model call of %s in run %s failed", agent.name, request.run)
            return ModelFault(error=describe_exception(exc))
        fault = fault_of(exc, model=model)
        # No traceback: it may quote the request, secrets and all.
        log.warning("model call of %s in run %s: %s", agent.name, request.run, fault.error)
        return fault


def _exchange(agent: AgentSpec, request: ModelRequest) -> ModelResponse:
    return loop.run(
        model_request(
            provider.model_for(agent),
            to_provider(agent, request.messages),
            model_request_parameters=tools_of(agent),
            model_settings=ModelSettings(timeout=request.deadline),
        ),
        deadline=request.deadline,
    )
