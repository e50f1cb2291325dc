"""Says who may read and change schedules and triggers: their owners, and admins."""

from runtime.ports import wiring
from runtime.ports.access import Actor


def owner_shown(actor: Actor) -> str | None:
    """Return the owner whose schedules and triggers the actor may read, None for all. Raise Forbidden."""
    access = wiring.access()
    access.require(actor, "runs:read")
    return None if access.reads_continuations(actor) else actor.person


def may_read(owner: str, actor: Actor) -> bool:
    """Say whether the actor may read what this person owns."""
    return owner == actor.person or wiring.access().reads_continuations(actor)


def may_change(owner: str, actor: Actor) -> bool:
    """Say whether the actor may change what this person owns."""
    return wiring.access().may_fork(actor, owner)
