"""What people do to runs: the one choke point of every door, with the order in which it refuses.

Whoever may not read a run learns nothing about it; whoever may not cancel it learns nothing of how
the race for its end came out.
"""

from typing import Any
from uuid import UUID

from django.conf import settings
from django.db import transaction

from runtime import ports
from runtime.control import engine
from runtime.control.access import for_admins, readable
from runtime.core import amounts
from runtime.core.budgets import Budget
from runtime.core.digest import require_json
from runtime.core.limits import MAX_KEY
from runtime.errors import NotImportable
from runtime.ports import Actor, InvalidInput, UnknownAgent
from runtime.store import pool, starts


def start(
    *, agent: str, input: Any, business_key: str | None, actor: Actor, budget: object = None
) -> engine.Started:
    """Start a run of a published agent.

    `budget` limits this run, as `amounts.budget_of` reads it, and can only be stricter than the
    installation's. Raises, in this order: Forbidden; NotJson; UnknownAgent; InvalidInput naming the field
    of `input`, `business_key` or the limit of `budget`; BusinessKeyConflict.
    """
    access, catalogue = ports.access(), ports.catalogue()
    with pool.asking() as connection:
        born, (rights, schema) = starts.look(
            connection, access.rights(actor), catalogue.schema(agent)
        )
    access.require_read(actor, "runs:start", rights, at=born.at)
    require_json(input, "input")
    catalogue.check_read(agent, schema, input)
    _check_key(business_key)
    return engine.start(
        agent=agent,
        input=input,
        requester=actor,
        business_key=business_key,
        budget=budget_for_run(budget),
        born=born,
    )


def budget_for_run(asked: object) -> Budget | None:
    """The installation's budget, and what is asked for where that is less. Raises InvalidInput."""
    most: Budget | None = settings.ABEYANCE_BUDGET
    try:
        return amounts.within(amounts.budget_of(asked), most)
    except amounts.BadAmount as exc:
        raise InvalidInput(f"budget.{exc.name}" if exc.name else "budget", exc.why) from exc


def export(*, run: UUID, actor: Actor) -> str:
    """Hand a run over: end it here and return the signed file of it; one that was exported gives it again.

    Raises, in this order: NoSuchRun; Forbidden (`not_eligible`); RunEnded; NotAtRest; TooLarge; Tampered.
    """
    for_admins(run, actor, "Exporting runs is for admins.")
    with transaction.atomic():
        return engine.export(run=run, actor=actor)


def take_over(*, data: bytes, actor: Actor) -> UUID:
    """Take over a run that another installation exported: `data` is its file. Returns its id.

    Raises, in this order: Forbidden; NotImportable, which says in one line why; RunKnown.
    """
    ports.access().require(actor, "admin")
    try:
        text = data.decode()
    except UnicodeDecodeError as exc:
        raise NotImportable("it is not UTF-8") from exc
    with transaction.atomic():
        run = engine.take_over(text=text, actor=actor)
        agent = readable(run, actor)
        try:
            ports.catalogue().check_input(agent.agent, agent.input)
        except UnknownAgent as exc:
            raise NotImportable(f"there is no agent {agent.agent!r} here") from exc
        except InvalidInput:
            pass  # it was started with that input, and goes on with it
    return run


def _check_key(key: str | None) -> None:
    if key is None:
        return
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput("business_key", f"must have 1 to {MAX_KEY} characters")
    if "\x00" in key:
        raise InvalidInput("business_key", "contains a character that is not text")
