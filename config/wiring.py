"""Plugs implementations into runtime.ports, once per process."""

from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_out

from agents.catalogue.published import Catalogue, publish
from agents.errors import RegistryError
from agents.registry import load
from approvals.governance.prompt_versions import StoredPrompts
from approvals.people import accounts
from approvals.port.adapter import ApprovalService
from approvals.rights.access import AccessService
from runtime import broker
from runtime.ports import wiring
from runtime.store.object_stores.stores import open_store
from runtime.upkeep import startup


def connect() -> None:
    """Connect the ports of every process: permissions, the agents' catalogue and approvals."""
    wiring.plug(access=AccessService(), catalogue=Catalogue(), approvals=ApprovalService())
    if settings.SIGNOFF_OBJECT_STORE:
        try:
            wiring.plug(objects=open_store(settings.SIGNOFF_OBJECT_STORE))
        except ValueError as problem:
            reason = f"SIGNOFF_OBJECT_STORE cannot be used: {problem}"
            raise SystemExit(f"signoff: {reason}") from None
    elif any(rule.days for rule in settings.SIGNOFF_ARCHIVE):
        raise SystemExit("signoff: SIGNOFF_ARCHIVE needs SIGNOFF_OBJECT_STORE, where its files are")
    user_logged_out.connect(_notify_logged_out)
    accounts.sessions_ended.connect(_notify_ended_sessions)


def _notify_logged_out(user: User | None, **_: Any) -> None:
    """Notify the live streams of a user who logs out, so that they end with the session."""
    if user is not None:
        broker.notify_person(user.get_username())


def _notify_ended_sessions(person: str, **_: Any) -> None:
    broker.notify_person(person)


def connect_effects() -> None:
    """Connect the ports of workers: load the agents, and publish them for processes without author code.

    Ends the process with one line if they cannot be loaded.
    """
    # Only workers import the libraries of models and tools.
    from agents.effect_handler import AgentEffects
    from agents.external_agent import with_external_agent
    from agents.isolation.processes import Children
    from agents.llm.providers import import_clients, require_models
    from agents.llm.rate_limits import RateLimits

    try:
        registry = with_external_agent(load(settings.SIGNOFF_AGENTS, settings.AGENTS_DIR))
        require_models(registry)
    except RegistryError as problem:
        raise SystemExit(f"signoff: {problem}") from None
    import_clients(registry)
    startup.with_database(lambda: publish(registry))
    isolated = (tool.function.__module__ for tool in registry.tools() if tool.isolate)
    children = Children(isolated)
    wiring.plug(
        effects=AgentEffects(
            registry=registry,
            rate_limits=RateLimits(),
            children=children,
            prompts=StoredPrompts(),
        )
    )
