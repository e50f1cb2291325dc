"""Selects the models that answer: the agent's script, the models it names, or those of SIGNOFF_MODEL.

Each model has a few clients per process, used in turn: they keep connections, and belong to the one event loop on
which calls run. A process remembers which models did not answer it, so that calls try the next one at once.
"""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib import import_module
from itertools import cycle

from django.conf import settings
from pydantic_ai.models import Model

from agents import endpoints
from agents.endpoints import SCRIPTED, Endpoint, ProviderKind, provider_of
from agents.errors import RegistryError
from agents.llm.clients.models import client_of
from agents.masked_output import REDACTED
from agents.registry import Registry
from agents.sdk.spec import AgentSpec
from runtime.core.values.limits import plain

# A client looks at each of its connections whenever a call begins or ends: hundreds of them would take longer
# than the call.
CLIENTS = 8

REMEMBERED = 60.0  # seconds for which a model counts as out of order

log = logging.getLogger(__name__)

_refused: dict[str, frozenset[str]] = {}
_making = threading.Lock()
_turns = cycle(range(CLIENTS))


def is_scripted(agent: AgentSpec) -> bool:
    """Say whether the agent's script answers: it has one, and is code or SIGNOFF_MODEL is `scripted`."""
    return agent.model is not None and (agent.is_code or settings.SIGNOFF_MODEL == SCRIPTED)


def models_of(agent: AgentSpec) -> tuple[str, ...]:
    """List the agent's models in the order in which they are called.

    Empty if neither it nor the installation names one.
    """
    if is_scripted(agent):
        return (agent.model_name,)
    names = settings.SIGNOFF_MODEL
    return agent.models or (() if names == SCRIPTED else tuple(map(str.strip, names.split(","))))


class Outages:
    """The models out of order: their attempts were used up, and the engine called the next one.

    After `REMEMBERED` seconds one call tries a model again. A reply ends the outage. A failure extends it by the same
    time, and the call tries the next model. `clock` must be monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def begin(self, model: str) -> None:
        """Record that the attempts at this model are used up. A known outage is not extended."""
        with self._lock:
            self._until.setdefault(model, self._clock() + REMEMBERED)

    def end(self, model: str) -> None:
        """Record that this model replied."""
        with self._lock:
            self._until.pop(model, None)

    def choose(self, models: Sequence[str]) -> str:
        """Choose the first model that works or may be tried again; the first of all if none does."""
        with self._lock:
            now = self._clock()
            for model in models:
                until = self._until.get(model)
                if until is None:
                    return model
                if until <= now:
                    self._until[model] = now + REMEMBERED  # for every call but this one
                    return model
        return models[0]


def choose_models(agent: AgentSpec, next_model: str, outages: Outages) -> tuple[str, str]:
    """Return the model to ask, and its fallback or an empty text.

    `next_model` is the one that the engine names once the attempts at the previous one are used up. It is ignored if
    it is no longer configured.
    """
    models = models_of(agent)
    if next_model not in models:
        next_model = outages.choose(models)
    elif next_model != models[0]:
        outages.begin(models[models.index(next_model) - 1])
    later = models[models.index(next_model) + 1 :]
    return next_model, later[0] if later else ""


def model_of(name: str, refused: frozenset[str] = frozenset()) -> Model:
    """Return the next client in turn of that model, which leaves out the `refused` settings.

    Raise LookupError for an unknown provider.
    """
    endpoint = read_endpoints()[provider_of(name)]
    with _making:  # or two threads would each make a client, and one would never be closed
        return _client(endpoint, name.partition(":")[2], refused, next(_turns))


def streams(name: str) -> bool:
    """Say whether the provider of that model streams replies."""
    return read_endpoints()[provider_of(name)].streams


def refused_settings(name: str) -> frozenset[str]:
    """Return the settings that the server of that model refused, as far as this process knows."""
    return _refused.get(name, frozenset())


def remember_refused(name: str, refused: frozenset[str]) -> None:
    """Leave out these settings of each request to that model, whose server replied without them."""
    if refused != refused_settings(name):
        log.warning("Model %s: its server refuses %s", name, ", ".join(sorted(refused)))
        _refused[name] = refused


def read_endpoints() -> dict[str, Endpoint]:
    """Return the providers of this installation, by name."""
    return endpoints.list_providers(
        openai=(settings.OPENAI_BASE_URL, settings.OPENAI_API_KEY),
        anthropic=(settings.ANTHROPIC_BASE_URL, settings.ANTHROPIC_API_KEY),
        configured=settings.SIGNOFF_PROVIDERS,
    )


def without_keys(text: str) -> str:
    """Replace every provider's key in a text, and shorten it to the length of an error."""
    for key in (endpoint.key for endpoint in read_endpoints().values() if endpoint.key):
        text = text.replace(key, REDACTED)
    return plain(text)


def lacking(registry: Registry) -> Iterator[str]:
    """List the settings that agents' models lack, each with agent, field, model and variable."""
    endpoints_by_name = read_endpoints()
    for agent in registry.agents.values():
        if not models_of(agent):
            yield (
                f"agent {agent.name}: model: it has no script, names no model,"
                " and SIGNOFF_MODEL is scripted: set one of them"
            )
        for model in agent.models if not is_scripted(agent) else ():
            if (lack := endpoints.missing(model, endpoints_by_name)) is not None:
                yield f"agent {agent.name}: models: {model}: {lack}"


def require_models(registry: Registry) -> None:
    """Raise RegistryError if an agent has no model that can be called."""
    for lack in lacking(registry):
        raise RegistryError(lack)


def import_clients(registry: Registry) -> None:
    """Import the clients of all models in use, which takes a second, before the first run waits for it."""
    agents = [agent for agent in registry.agents.values() if not is_scripted(agent)]
    endpoints_by_name = read_endpoints()
    for name in {provider_of(model) for agent in agents for model in models_of(agent)}:
        library = (
            "anthropic" if endpoints_by_name[name].kind is ProviderKind.ANTHROPIC else "openai"
        )
        import_module(f"pydantic_ai.models.{library}")


@cache
def _client(endpoint: Endpoint, model: str, refused: frozenset[str], _turn: int) -> Model:
    return client_of(endpoint, model, refused)


def _reset() -> None:
    """Forget clients after a fork: it must not share the parent's sockets, and the lock may be held."""
    global _making
    _making = threading.Lock()
    _client.cache_clear()


os.register_at_fork(after_in_child=_reset)
