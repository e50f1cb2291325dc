"""Stopping agents and letting them go on: what admins do, and with which refusals.

`actor` None is the command line of the installation. The stop's own row is the record of both acts.
"""

import logging

from django.db import transaction

from runtime import ports
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_REASON
from runtime.errors import StopNotOn, StoppedAlready
from runtime.ports import Actor, InvalidInput, UnknownAgent
from runtime.store import kill_switches, pool
from runtime.store.kill_switches import EVERY_AGENT, Stop

log = logging.getLogger(__name__)

SCOPE = "admin"
HISTORY = 50


def stop(*, agent: object, reason: object, actor: Actor | None) -> Stop:
    """Have no effect start for an agent, or for any if it is empty, within two seconds.

    Raises, in this order: Forbidden; UnknownAgent; InvalidInput naming `reason`; StoppedAlready.
    """
    _require_admin(actor)
    name, why = _known(agent), _checked(reason)
    with transaction.atomic():
        row = {"agent": name, "reason": why, **_who(actor)}
        done = kill_switches.put(pool.djangos(), row)
    if done is None:
        raise StoppedAlready
    log.warning("%s stopped %s: %s", _named(actor), name or "all agents", why)
    return done


def lift(*, stop: int, actor: Actor | None) -> Stop:
    """End a stop: what it held up is due at once. Raises Forbidden, StopNotOn."""
    _require_admin(actor)
    with transaction.atomic():
        done = kill_switches.lift(pool.djangos(), stop, **_who(actor))
    if done is None:
        raise StopNotOn
    log.warning("%s let %s go on", _named(actor), done.agent or "all agents")
    return done


def listed(*, lifted: bool, actor: Actor | None) -> list[Stop]:
    """The stops that are on, or the last ones that are over. Raises Forbidden."""
    _require_admin(actor)
    return kill_switches.listed(pool.djangos(), lifted=lifted, limit=HISTORY)


def on() -> list[Stop]:
    """What everybody may know: which agents are stopped right now."""
    return kill_switches.listed(pool.djangos(), lifted=False, limit=HISTORY)


def _require_admin(actor: Actor | None) -> None:
    if actor is not None:
        ports.access().require(actor, SCOPE)


def _known(agent: object) -> str:
    if not isinstance(agent, str):
        raise UnknownAgent("an agent has a name")
    if agent != EVERY_AGENT and not ports.catalogue().knows(agent):
        raise UnknownAgent(f"there is no agent named {agent}")
    return agent


def _checked(reason: object) -> str:
    if not isinstance(reason, str) or not reason.strip():
        raise InvalidInput("reason", "is required to stop agents")
    if len(reason) > MAX_REASON:
        raise InvalidInput("reason", f"must have at most {MAX_REASON} characters")
    try:
        require_json(reason)
    except NotJson as exc:
        raise InvalidInput("reason", "contains a character that is not text") from exc
    return reason


def _who(actor: Actor | None) -> dict[str, str | None]:
    if actor is None:
        return {"by": None, "token": None}
    return {"by": actor.person, "token": actor.token}


def _named(actor: Actor | None) -> str:
    return "the command line" if actor is None else actor.person
