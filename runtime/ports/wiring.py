"""Connects the ports of this process to their implementations."""

from dataclasses import dataclass
from typing import NoReturn

from runtime.ports.access import Access
from runtime.ports.agents import AgentCatalogue
from runtime.ports.approvals import ApprovalPort
from runtime.ports.effects import EffectHandler
from runtime.ports.objects import ObjectStore


@dataclass(slots=True, kw_only=True)
class Socket:
    """The connected implementations. `effects` stays None where agents do not run, as in the web process.

    `objects` stays None where no object store is set.
    """

    access: Access | None = None
    catalogue: AgentCatalogue | None = None
    approvals: ApprovalPort | None = None
    effects: EffectHandler | None = None
    objects: ObjectStore | None = None


_socket = Socket()


def plug(
    *,
    access: Access | None = None,
    catalogue: AgentCatalogue | None = None,
    approvals: ApprovalPort | None = None,
    effects: EffectHandler | None = None,
    objects: ObjectStore | None = None,
) -> None:
    """Connect implementations; called by config.wiring once per process, and by tests."""
    _socket.access = access or _socket.access
    _socket.catalogue = catalogue or _socket.catalogue
    _socket.approvals = approvals or _socket.approvals
    _socket.effects = effects or _socket.effects
    _socket.objects = objects or _socket.objects


def resolve_access() -> Access:
    """Return the implementation of Access."""
    return _socket.access or _missing("access")


def resolve_catalogue() -> AgentCatalogue:
    """Return the implementation of AgentCatalogue."""
    return _socket.catalogue or _missing("catalogue")


def resolve_approvals() -> ApprovalPort:
    """Return the implementation of Approvals."""
    return _socket.approvals or _missing("approvals")


def resolve_effects() -> EffectHandler:
    """Return the implementation of EffectHandler."""
    return _socket.effects or _missing("effects")


def find_object_store() -> ObjectStore | None:
    """Return the object store, None if none is set: large contents then stay in Postgres."""
    return _socket.objects


def unplug_objects() -> None:
    """Disconnect the object store; called by tests."""
    _socket.objects = None


def _missing(name: str) -> NoReturn:
    raise LookupError(f"nothing is plugged into the port {name!r} of this process")
