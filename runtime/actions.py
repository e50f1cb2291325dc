"""What people do to runs: the one choke point of every door, with the order in which it refuses.

Whoever may not read a run learns nothing about it; whoever may not cancel it learns nothing of how
the race for its end came out.
"""

from typing import Any
from uuid import UUID

from django.db import transaction

from runtime import engine, ports, queries
from runtime.core.continuation import RunStatus
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.errors import NoSuchRun, RunEnded
from runtime.ports import Actor, Forbidden, InvalidInput

MAX_REASON = 2_000
MAX_BUSINESS_KEY = 200


def start(*, agent: str, input: Any, business_key: str | None, actor: Actor) -> engine.Started:
    """Start a run of a published agent.

    Raises, in this order: Forbidden; NotJson; UnknownAgent; InvalidInput naming the field of `input`, or
    `business_key`; BusinessKeyConflict.
    """
    ports.access().require(actor, "runs:start")
    require_json(input, "input")
    ports.catalogue().check_input(agent, input)
    _check_key(business_key)
    with transaction.atomic():
        return engine.start(agent=agent, input=input, requester=actor, business_key=business_key)


def cancel(*, run: UUID, reason: object, actor: Actor) -> queries.RunDetail:
    """End a run: nothing new starts, and what is under way is waited for.

    Whoever asks for what is asked for already changes nothing. `reason` comes just as it came through
    the door. Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming
    `reason`; RunEnded with the run's status, also for one that is quarantined.
    """
    found = readable(run, actor)
    if not ports.access().may_cancel(actor, found.requester):
        raise Forbidden("not_eligible", f"{actor.person} may not cancel runs of {found.requester}.")
    reason = _checked(reason)
    if found.status == RunStatus.QUARANTINED:  # nobody could write its end into its journal
        raise RunEnded(found.status)
    if found.status != RunStatus.CANCELLING and not queries.cancel_asked(run):
        with transaction.atomic():
            engine.cancel(run=run, actor=actor, reason=reason)
    return readable(run, actor)


def readable(run: UUID, actor: Actor) -> queries.RunDetail:
    """A run as this actor may read it. Raises NoSuchRun."""
    found = queries.run_detail(ports.access().readable_runs(actor), run)
    if found is None:
        raise NoSuchRun
    return found


def _check_key(key: str | None) -> None:
    if key is None:
        return
    if not 1 <= len(key) <= MAX_BUSINESS_KEY:
        raise InvalidInput("business_key", f"must have 1 to {MAX_BUSINESS_KEY} characters")
    if "\x00" in key:
        raise InvalidInput("business_key", "contains a character that is not text")


def _checked(reason: object) -> str:
    """The reason verbatim: what the audit keeps is what was written."""
    if not isinstance(reason, str):
        raise InvalidInput("reason", "must be text")
    if not reason.strip():
        raise InvalidInput("reason", "is required to cancel")
    if len(reason) > MAX_REASON:
        raise InvalidInput("reason", f"must have at most {MAX_REASON} characters")
    try:
        require_json(reason)
    except NotJson as exc:
        raise InvalidInput("reason", "contains a character that is not text") from exc
    return reason
