"""Says whether a job is for another worker: one that has its agent, while this process does not."""

from runtime.errors import UnknownAgent
from runtime.ports.effects import EffectHandler
from runtime.store import workers
from runtime.store.pool import Connection


def is_for_another(connection: Connection, agent: str, handler: EffectHandler) -> bool:
    """Return whether this process does not have the agent, but a live worker has it."""
    return not has_agent(handler, agent) and workers.have_agent(connection, agent)


def has_agent(handler: EffectHandler, agent: str) -> bool:
    """Return whether this process has the agent."""
    try:
        handler.agent(agent)
    except UnknownAgent:
        return False
    return True
