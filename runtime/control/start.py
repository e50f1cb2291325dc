"""Starts a run: `start` for people, `create` for callers that have checked who asks.

A run of a thread remembers earlier runs of the thread: what people asked, and what the agent answered. Only texts of
runs that its requester may read are taken, from verified journals. The people who steered one of these runs join the
origin of the new one, because its text may steer the agent.
"""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from django.conf import settings

from runtime import broker
from runtime.control.user_actions import notify, open_transaction
from runtime.core.documents.blobs import Blob, encode_memory, format_memory_text, make_blob
from runtime.core.run.continuation import Continuation, Phase, list_steering_people, merge_people
from runtime.core.run.events import Completed, Event, MessageReceived, Remembered, RunStarted
from runtime.core.run.reducer import Entry, step
from runtime.core.values import budgets
from runtime.core.values.errors import CoreError
from runtime.core.values.json_values import is_equal, require_json
from runtime.core.values.limits import MAX_KEY, MAX_MEMORY
from runtime.errors import BusinessKeyConflict, InvalidInput, KeyMissing, Tampered
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import threads
from runtime.reads.threads import ThreadRun
from runtime.store import pool, runs
from runtime.store.tables import blobs, journal

log = logging.getLogger(__name__)


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

    `budget` limits this run, as `budgets.read_budget` reads it. It can only lower the installation's limits. `makers`
    are people besides the actor who brought it about. A run in a `thread` remembers what its agent says.
    Raise, in this order: Forbidden; NotJson; UnknownAgent; InvalidInput naming the field of `input`,
    `business_key`, `thread` or the limit of `budget`; BusinessKeyConflict.
    """
    access, catalogue = wiring.resolve_access(), wiring.resolve_catalogue()
    with pool.join_transaction() as connection:
        born, (rights, schema) = runs.peek_start(
            connection, access.rights(actor), catalogue.build_schema_expression(agent)
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
        budget=read_run_budget(budget),
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
    budget: budgets.BudgetLimits | None = None,
    makers: Sequence[str] = (),
    born: runs.NewRun | None = None,
    thread: str | None = None,
) -> Started:
    """Create a run, or find the run with the same business key, agent, requester and input.

    Runs in the caller's transaction, if there is one. Postgres makes the id unless the run is `born`. Raise NotJson, or
    BusinessKeyConflict if the run has another input.
    """
    require_json(input, "input")
    with pool.join_transaction() as connection:
        if born is None:
            born, _ = runs.peek_start(connection)
        memory = recall_for_run(agent=agent, thread=thread, actor=requester)
        makers = merge_people(makers, memory.people)
        event = RunStarted(
            agent=agent,
            input=input,
            requester=requester.person,
            budget=budget or budgets.NO_LIMITS,
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


def read_run_budget(requested: object) -> budgets.BudgetLimits | None:
    """Return the lower of the requested limits and the installation's. Raise InvalidInput."""
    installation_limits: budgets.BudgetLimits | None = settings.SIGNOFF_BUDGET
    try:
        return budgets.limit_budget(budgets.read_budget(requested), installation_limits)
    except budgets.InvalidBudget as exc:
        raise InvalidInput(f"budget.{exc.name}" if exc.name else "budget", exc.detail) from exc


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run remembers: references for its journal, the texts with their runs, and the people behind them.

    `summary` is the most tokens of the summary that the model makes of them, 0 for none.
    """

    remembered: tuple[Remembered, ...] = ()
    texts: tuple[tuple[UUID, Blob], ...] = ()
    people: tuple[str, ...] = ()
    summary: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    of: Remembered
    blob: Blob
    size: int


NOTHING = Memory()


def recall_for_run(*, agent: str, thread: str | None, actor: Actor) -> Memory:
    """Return what a run that this actor starts now remembers. Nothing without a thread, or if its agent says so.

    The runs that it remembers are locked against retention until the caller's transaction ends.
    """
    if thread is None:
        return NOTHING
    remembers = wiring.resolve_catalogue().remembers(agent)
    if not (max_texts := remembers.texts):
        return NOTHING
    texts: list[_Text] = []
    people: tuple[str, ...] = ()
    with open_transaction() as connection:
        for run in threads.list_answered_runs(
            wiring.resolve_access().select_readable_runs(actor), agent=agent, thread=thread
        ):
            if len(texts) >= max_texts:
                break
            if (read := _read(connection, run)) is None:
                continue
            now, run_texts = read
            fitting = _select_fitting_texts(
                run_texts,
                max_texts=max_texts - len(texts),
                characters=MAX_MEMORY - sum(text.size for text in texts),
            )
            if not fitting:
                break  # older ones do not fit either
            texts += fitting
            people = merge_people(people, list_steering_people(now), [now.requester])
    texts.reverse()
    return Memory(
        remembered=tuple(text.of for text in texts),
        texts=tuple((text.of.run, text.blob) for text in texts),
        people=people,
        summary=remembers.summary if texts else 0,
    )


def _check_key(field: str, key: str | None) -> None:
    if key is None:
        return
    if not 1 <= len(key) <= MAX_KEY:
        raise InvalidInput(field, f"must have 1 to {MAX_KEY} characters")
    if "\x00" in key:
        raise InvalidInput(field, "contains a character that is not text")


def _find_by_key(connection: pool.Connection, row: dict[str, Any], input: Any) -> Started:
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
    if stored[2] is None and not is_equal(json.loads(stored[1]), input):
        raise BusinessKeyConflict
    return Started(run=stored[0], created=False)


def _select_fitting_texts(texts: list[_Text], *, max_texts: int, characters: int) -> list[_Text]:
    """Return the last texts of a run, the newest first, as far as they fit."""
    fitting: list[_Text] = []
    for text in reversed(texts[-max_texts:]):
        characters -= text.size
        if characters < 0:
            break
        fitting.append(text)
    return fitting


def _read(connection: pool.Connection, run: ThreadRun) -> tuple[Continuation, list[_Text]] | None:
    """Lock a run against retention, and return its last state and its texts. None if it was erased, or is not valid."""
    connection.execute("SELECT FROM runtime_run WHERE id = %s FOR SHARE", (run.id,))
    try:
        history = journal.read_history(connection, run.id)
        now, texts = history.start, list[_Text]()
        for sealed, entry in history.entries:
            now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
            texts += _read_texts(run.id, now, entry.events, entry.at)
    except (CoreError, Tampered, KeyMissing) as exc:
        log.error("Run %s: not remembered, its journal does not verify: %s", run.id, exc)
        return None
    ended = now.phase is Phase.COMPLETED and (now.position, now.head) == (run.position, run.head)
    return (now, texts) if ended else None


def _read_texts(
    run: UUID, now: Continuation, events: Iterable[Event], at: datetime
) -> Iterator[_Text]:
    for event in events:
        kind: Literal["asked", "answered"] = "asked"
        match event:
            case RunStarted():
                by, text = event.requester, format_memory_text(event.input)
            case MessageReceived():
                by, text = event.by, format_memory_text(event.text)
            case Completed():
                kind, by, text = "answered", now.agent, format_memory_text(event.output)
            case _:
                continue
        blob = make_blob(encode_memory(run, kind, text))
        remembered = Remembered(run=run, kind=kind, by=by, at=at, digest=blob.digest)
        yield _Text(of=remembered, blob=blob, size=len(text))
