"""Connects the rooms: what the engine asks for through runtime.ports is plugged in here, once per process."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out

from agents.catalogue.published import Catalogue, publish
from agents.errors import RegistryError
from agents.registry import load
from approvals.accounts import people
from approvals.adapter import Gatekeeper
from approvals.permissions.access import Access
from runtime.broker import dispatch
from runtime.ports import wiring
from runtime.upkeep import startup


def connect() -> None:
    """What every process needs: rights, what agents there are, and who is asked before a call."""
    wiring.plug(access=Access(), catalogue=Catalogue(), gatekeeper=Gatekeeper())
    user_logged_out.connect(_ring_whoever_left)
    people.sessions_ended.connect(_ring_whose_sessions_ended)


def _ring_whoever_left(user: User | None, **_: Any) -> None:
    """The tabs of somebody who logs out in one of them are looked at, and end with their session."""
    if user is not None:
        dispatch.ring_person(user.get_username())


def _ring_whose_sessions_ended(person: str, **_: Any) -> None:
    dispatch.ring_person(person)


def connect_effects() -> None:
    """What workers need on top: the agents themselves, published for everybody who has no author code.

    Ends the process with one line if they cannot be loaded.
    """
    # Only workers pay for importing what models and tools need.
    from agents.effect_handler import AgentEffects
    from agents.isolation.processes import Children
    from agents.llm.providers import import_clients, require_models
    from agents.llm.rate_limits import RateLimits

    try:
        registry = load(settings.ABEYANCE_AGENTS, settings.AGENTS_DIR)
        require_models(registry)
    except RegistryError as problem:
        raise SystemExit(f"abeyance: {problem}") from None
    import_clients(registry)
    startup.with_database(lambda: publish(registry))
    isolated = (tool.function.__module__ for tool in registry.tools() if tool.isolate)
    children = Children(isolated)
    wiring.plug(
        effects=AgentEffects(registry=registry, rate_limits=RateLimits(), children=children)
    )
