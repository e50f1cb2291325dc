"""Starting a run: `start` for people, `create` for callers that have checked who asks."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.conf import settings

from runtime import broker
from runtime.control import thread_memory
from runtime.control.transaction import notify
from runtime.core.documents import budget_text
from runtime.core.run.budgets import NO_LIMITS, BudgetLimits
from runtime.core.run.continuation import merge_people
from runtime.core.run.events import RunStarted
from runtime.core.run.reducer import Entry
from runtime.core.values.json_values import require_json, same
from runtime.core.values.limits import MAX_KEY
from runtime.errors import BusinessKeyConflict, InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.store import pool, runs
from runtime.store.pool import Connection
from runtime.store.runs import NewRun
from runtime.store.tables import blobs, journal


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """A run, and whether this call created it or found it by its business key."""

    run: UUID
    created: bool


def start(
    *,
    agent: str,
    input: Any,
    business_key: str | None,
    actor: Actor,
    budget: object = None,
    makers: Sequence[str] = (),
    thread: str | None = None,
) -> Started:
    """Start a run of a published agent.

    `budget` limits this run, as `budget_text.budget_of` reads it. It can only lower the installation's limits. `makers`
    are people besides the actor who brought it about. A run in a `thread` remembers what its agent says.
    Raise, in this order: Forbidden; NotJson; UnknownAgent; InvalidInput naming the field of `input`,
    `business_key`, `thread` or the limit of `budget`; BusinessKeyConflict.
    """
    access, catalogue = wiring.access(), wiring.catalogue()
    with pool.in_transaction() as connection:
        born, (rights, schema) = runs.peek_start(
            connection, access.rights(actor), catalogue.schema(agent)
        )
    access.require_read(actor, "runs:start", rights, at=born.at)
    require_json(input, "input")
    catalogue.check_read(agent, schema, input)
    _check_key("business_key", business_key)
    _check_key("thread", thread)
    return create(
        agent=agent,
        input=input,
        requester=actor,
        business_key=business_key,
        budget=budget_for_run(budget),
        makers=makers,
        born=born,
        thread=thread,
    )


def create(
    *,
    agent: str,
    input: Any,
    requester: Actor,
    business_key: str | None = None,
    budget: BudgetLimits | None = None,
    makers: Sequence[str] = (),
    born: NewRun | None = None,
    thread: str | None = None,
) -> Started:
    """Create a run, or find the run with the same business key, agent, requester and input.

    Runs in the caller's transaction, if there is one. Postgres makes the id unless the run is `born`. Raise NotJson, or
    BusinessKeyConflict if the run has another input.
    """
    require_json(input, "input")
    with pool.in_transaction() as connection:
        if born is None:
            born, _ = runs.peek_start(connection)
        memory = thread_memory.recall_for_run(agent=agent, thread=thread, actor=requester)
        makers = merge_people(makers, memory.people)
        event = RunStarted(
            agent=agent,
            input=input,
            requester=requester.person,
            budget=budget or NO_LIMITS,
            business_key=business_key,
            makers=tuple(maker for maker in makers if maker != requester.person),
            thread=thread,
            memory=memory.remembered,
            memory_tokens=memory.summary,
        )
        first = journal.sign(born.run, 1, "", Entry(at=born.at, events=(event,)))
        row = {
            "id": born.run,
            "agent": agent,
            "requester": requester.person,
            "token": requester.token,
            "business_key": business_key,
            "thread": thread,
            "input": json.dumps(input),
            "head": first.seal.mac,
            "origin": merge_people([requester.person], makers),
        }
        if not runs.write_start(connection, row, first):
            return _find_by_key(connection, row, input)
        blobs.remember(connection, born.run, memory.texts)
    notify(born.run, queue=broker.NEW)
    return Started(run=born.run, created=True)


def budget_for_run(requested: object) -> BudgetLimits | None:
    """Return the lower of the requested limits and the installation's. Raise InvalidInput."""
    installation_limits: BudgetLimits | None = settings.SIGNOFF_BUDGET
    try:
        return budget_text.within(budget_text.budget_of(requested), installation_limits)
    except budget_text.InvalidBudget as exc:
        raise InvalidInput(f"budget.{exc.name}" if exc.name else "budget", exc.why) from exc


def _check_key(field: str, key: str | None) -> None:
    if key is None:
        return
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput(field, f"must have 1 to {MAX_KEY} characters")
    if "\x00" in key:
        raise InvalidInput(field, "contains a character that is not text")


def _find_by_key(connection: Connection, row: dict[str, Any], input: Any) -> Started:
    """Return the run with this business key. Raise BusinessKeyConflict if its input differs."""
    stored = connection.execute(
        """
        SELECT id, input, coalesce(removed_at, archived_at) FROM runtime_run
        WHERE agent = %(agent)s AND requester = %(requester)s AND business_key = %(business_key)s
        """,
        row,
    ).fetchone()
    assert stored is not None  # the conflicting row is committed and runs are never deleted
    # If the input was erased or is in the archive, the key alone identifies the run.
    if stored[2] is None and not same(json.loads(stored[1]), input):
        raise BusinessKeyConflict
    return Started(run=stored[0], created=False)
