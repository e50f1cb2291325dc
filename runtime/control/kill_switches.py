"""Engages and disengages kill switches. While one is engaged, no effect of its agent starts, or of any agent.

`actor` None is the command line of the installation. The row of a kill switch records who engaged and disengaged it.
"""

import logging

from runtime.control import user_actions
from runtime.errors import SwitchAlreadyEngaged, SwitchNotEngaged, UnknownAgent
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.tables import kill_switches

log = logging.getLogger(__name__)

SCOPE = "admin"
HISTORY = 50


def engage(*, agent: object, reason: object, actor: Actor | None) -> kill_switches.KillSwitchRow:
    """Stop effects of an agent from starting, or of every agent if it is empty. Takes at most two seconds.

    Raise, in this order: Forbidden; UnknownAgent; InvalidInput naming `reason`; SwitchAlreadyEngaged.
    """
    _require_admin(actor)
    if not isinstance(agent, str):
        raise UnknownAgent("an agent has a name")
    if agent != kill_switches.EVERY_AGENT and not wiring.resolve_catalogue().is_published(agent):
        raise UnknownAgent(f"there is no agent named {agent}")
    text = reason if isinstance(reason, str) else ""
    reason_text = user_actions.validate_reason(text, "is required to stop agents")
    with user_actions.open_transaction() as connection:
        kill_switch = kill_switches.engage(
            connection, {"agent": agent, "reason": reason_text, **_identify_actor(actor)}
        )
    if kill_switch is None:
        raise SwitchAlreadyEngaged
    log.warning(
        "Kill switch of %s: engaged by %s: %s",
        agent or "all agents",
        _describe_actor(actor),
        reason_text,
    )
    return kill_switch


def disengage(*, stop: int, actor: Actor | None) -> kill_switches.KillSwitchRow:
    """Disengage a kill switch and make its runs due at once. Raise Forbidden, SwitchNotEngaged."""
    _require_admin(actor)
    with user_actions.open_transaction() as connection:
        kill_switch = kill_switches.disengage(connection, stop, **_identify_actor(actor))
    if kill_switch is None:
        raise SwitchNotEngaged
    log.warning(
        "Kill switch of %s: disengaged by %s",
        kill_switch.agent or "all agents",
        _describe_actor(actor),
    )
    return kill_switch


def list_switches(*, lifted: bool, actor: Actor | None) -> list[kill_switches.KillSwitchRow]:
    """Return the engaged kill switches, or the last ones that were disengaged. Raise Forbidden."""
    _require_admin(actor)
    return kill_switches.list_switches(pool.use_django_connection(), lifted=lifted, limit=HISTORY)


def list_active_switches() -> list[kill_switches.KillSwitchRow]:
    """Return the engaged kill switches. Every user may see them."""
    return kill_switches.list_switches(pool.use_django_connection(), lifted=False, limit=HISTORY)


def _require_admin(actor: Actor | None) -> None:
    if actor is not None:
        wiring.resolve_access().require(actor, SCOPE)


def _identify_actor(actor: Actor | None) -> dict[str, str | None]:
    if actor is None:
        return {"by": None, "token": None}
    return {"by": actor.person, "token": actor.token}


def _describe_actor(actor: Actor | None) -> str:
    return "the command line" if actor is None else actor.person
