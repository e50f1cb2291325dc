"""Kill switches: an admin engages one so that no effect of an agent, or of any, starts.

`actor` None is the command line of the installation. The switch's own row is the record of both acts.
"""

import logging

from runtime.control import access
from runtime.control.transaction import atomic
from runtime.core.limits import MAX_REASON
from runtime.errors import StopNotOn, StoppedAlready, UnknownAgent
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import kill_switches
from runtime.store.tables.kill_switches import EVERY_AGENT, Stop

log = logging.getLogger(__name__)

SCOPE = "admin"
HISTORY = 50


def engage(*, agent: object, reason: object, actor: Actor | None) -> Stop:
    """Have no effect start for an agent, or for any if it is empty, within two seconds.

    Raise, in this order: Forbidden; UnknownAgent; InvalidInput naming `reason`; StoppedAlready.
    """
    _require_admin(actor)
    name = _known(agent)
    given = reason if isinstance(reason, str) else ""
    why = access.text("reason", given, MAX_REASON, required="is required to stop agents")
    with atomic() as connection:
        done = kill_switches.put(connection, {"agent": name, "reason": why, **_who(actor)})
    if done is None:
        raise StoppedAlready
    log.warning("%s stopped %s: %s", _named(actor), name or "all agents", why)
    return done


def disengage(*, stop: int, actor: Actor | None) -> Stop:
    """End a stop: the runs that it held up are due at once. Raise Forbidden, StopNotOn."""
    _require_admin(actor)
    with atomic() as connection:
        done = kill_switches.lift(connection, stop, **_who(actor))
    if done is None:
        raise StopNotOn
    log.warning("%s let %s go on", _named(actor), done.agent or "all agents")
    return done


def list_switches(*, lifted: bool, actor: Actor | None) -> list[Stop]:
    """Return the stops that are on, or the last ones that are over. Raise Forbidden."""
    _require_admin(actor)
    return kill_switches.listed(pool.djangos(), lifted=lifted, limit=HISTORY)


def active() -> list[Stop]:
    """Return the stops that are on, which every user may know."""
    return kill_switches.listed(pool.djangos(), lifted=False, limit=HISTORY)


def _require_admin(actor: Actor | None) -> None:
    if actor is not None:
        wiring.access().require(actor, SCOPE)


def _known(agent: object) -> str:
    if not isinstance(agent, str):
        raise UnknownAgent("an agent has a name")
    if agent != EVERY_AGENT and not wiring.catalogue().knows(agent):
        raise UnknownAgent(f"there is no agent named {agent}")
    return agent


def _who(actor: Actor | None) -> dict[str, str | None]:
    if actor is None:
        return {"by": None, "token": None}
    return {"by": actor.person, "token": actor.token}


def _named(actor: Actor | None) -> str:
    return "the command line" if actor is None else actor.person
