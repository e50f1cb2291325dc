"""One model call, from a frame's messages to an answer or a fault."""

import logging

from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.settings import ModelSettings

from agents.gateway import loop, provider
from agents.gateway.faults import fault_of, too_slow
from agents.gateway.messages import from_provider, to_provider, tools_of
from agents.spec import AgentSpec
from agents.wording import describe_exception
from runtime.errors import KeyMissing
from runtime.ports import ModelAnswer, ModelFault, ModelRequest

log = logging.getLogger(__name__)

# A key that is missing is put back by people: wait as long as the engine does between attempts.
KEY_WAIT = 60.0


def ask(agent: AgentSpec, request: ModelRequest) -> ModelAnswer | ModelFault:
    """Ask the agent's model what to do next, within the request's deadline. Never raises."""
    try:
        conversation = to_provider(agent, request.messages)
    except KeyMissing as exc:
        return _missing(exc, agent, request)
    except Exception as exc:
        log.exception("the messages of %s in run %s cannot be read", agent.name, request.run)
        return ModelFault(error=describe_exception(exc))
    try:
        return from_provider(agent, _exchange(agent, request, conversation))
    except KeyMissing as exc:
        return _missing(exc, agent, request)
    except TimeoutError:
        return too_slow(provider.name_of(agent), request.deadline)
    except Exception as exc:
        fault = _fault(agent, exc)
        # A traceback may quote the request: where there may be secrets in it, the fault has to do.
        quiet = agent.keeps_secrets or not provider.is_scripted()
        log.warning(
            "model call of %s in run %s failed: %s",
            agent.name,
            request.run,
            fault.error,
            exc_info=None if quiet else exc,
        )
        return fault


def _exchange(
    agent: AgentSpec, request: ModelRequest, conversation: list[ModelMessage]
) -> ModelResponse:
    return loop.run(
        model_request(
            provider.model_for(agent),
            conversation,
            model_request_parameters=tools_of(agent),
            model_settings=ModelSettings(timeout=request.deadline),
        ),
        deadline=request.deadline,
    )


def _fault(agent: AgentSpec, exc: Exception) -> ModelFault:
    """A script that raises will raise again; a provider may do better next time."""
    if not provider.is_scripted():
        return fault_of(exc, model=provider.name_of(agent))
    said = type(exc).__name__ if agent.keeps_secrets else describe_exception(exc)
    return ModelFault(error=said)


def _missing(exc: KeyMissing, agent: AgentSpec, request: ModelRequest) -> ModelFault:
    log.error("model call of %s in run %s waits: %s", agent.name, request.run, exc)
    return ModelFault(error=str(exc), again=True, after=KEY_WAIT)
