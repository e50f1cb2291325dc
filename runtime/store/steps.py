"""Commits a step in one statement: outcomes, the next intents, gates, signals and the run's row.

The module of each table has the part that writes it, and approvals adds the parts for its requests. All parts
depend on the run's row, which is changed only for the epoch, owner and position of the claim. If the row is not
found, the step is not written.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum, auto
from functools import cache
from itertools import compress
from operator import attrgetter
from uuid import UUID

import psycopg
from pydantic import TypeAdapter

from runtime.core.documents.blobs import Blob
from runtime.core.documents.continuations import Brief
from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.events import WaitStarted
from runtime.core.run.retries import RateLimitWait, rate_limit_waits
from runtime.errors import Tampered
from runtime.ports.approvals import StatementPart
from runtime.store import failpoints, gates, leases, pool
from runtime.store.leases import RunClaim
from runtime.store.pool import Connection
from runtime.store.tables import (
    blobs,
    continuations,
    partial_replies,
    signals,
    used_approvals,
    waits,
)
from runtime.store.tables.journal import APPEND, SignedEntry, was_written
from runtime.store.tables.used_approvals import Spend

# Optional parts of a step, with the field that requires each, in the order of the statement. Most steps need none of
# them, and do not pay for them.
_PARTS = (
    ("continued", continuations.REPLACE, "continuation"),
    ("dropped", continuations.DROP, "ended"),
    ("opened", gates.OPEN, "opened_gates"),
    ("settled", gates.TAKE_EFFECT, "settled"),
    ("closed", gates.CLOSE, "closed"),
    ("consumed", signals.CONSUME, "signals"),
    ("stored", blobs.STORE, "blobs"),
    ("referred", blobs.REFER, "blobs"),
    ("pinned", continuations.PIN, "pins"),
    ("awaited", waits.OPEN, "opened_waits"),
    ("given_up", waits.CLOSE, "ended_waits"),
    ("spent", used_approvals.SPEND, "spent"),
    ("unkept", partial_replies.DROP, "ended_replies"),
    ("summarised", blobs.SUMMARISE, "summary"),
    ("recalling", blobs.RECALL, "summary"),
)
_OWN = tuple((name, sql) for name, sql, _ in _PARTS)
_needed = attrgetter(*(field for *_, field in _PARTS))


class CommitResult(Enum):
    """The result of a commit: written, or not written because of new signals or a lost lease."""

    WRITTEN = auto()
    NEW_SIGNALS = auto()
    LOST = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One commit, of the `kind` of its last event, and the state that it leads to.

    `awaits` is the last answer of a provider that the run waits for. `continuation` is written from time to time in a
    long run; `release` releases the run until `due`. `blobs` are the results that its events refer to. With `pins`
    its continuation becomes the base of the run. `opened_waits` are calls that begin to wait for an event,
    `ended_waits` the places of calls whose wait has ended. With `first` the step is valid only if no signal came
    before: a wait times out, or a late outcome settles a call. `spent` are the approvals under which it starts calls.
    `ended_replies` are frames whose model call has ended: the part of the reply is deleted. `summary` sums up the
    contents `summed_up`; it is stored if all of these exist.
    """

    claim: RunClaim
    state: Continuation
    kind: str
    depth: int
    entry: SignedEntry
    status: str
    output: str | None
    reason: str | None
    awaits: str | None
    unheard: int
    ended: bool
    release: bool
    due: datetime | None
    signal_version: int
    continuation: Brief | None
    signals: tuple[int, ...]
    opened_gates: tuple[Pending, ...] = ()
    settled: tuple[UUID, ...] = ()
    closed: tuple[UUID, ...] = ()
    blobs: tuple[Blob, ...] = ()
    pins: bool = False
    opened_waits: tuple[WaitStarted, ...] = ()
    ended_waits: tuple[tuple[str, str], ...] = ()
    first: bool = False
    spent: tuple[Spend, ...] = ()
    ended_replies: tuple[str, ...] = ()
    summary: Blob | None = None
    summed_up: tuple[str, ...] = ()


def commit(
    connection: Connection,
    step: Step,
    extra_statements: Sequence[StatementPart] = (),
    *,
    prepare: bool,
) -> CommitResult:
    """Write the step, with the parts that approvals adds.

    If the connection broke during an earlier attempt, the step is looked up in the journal and may count as written.
    Raises Tampered if an approval was used before, with nothing written, or psycopg.OperationalError if the
    connection breaks.
    """
    failpoints.hit("before", step.kind, step.depth)
    advance = leases.advance(
        suspends=step.continuation is not None,
        ends=step.ended,
        releases=step.release,
        # Such a step depends on the signals that were read. A signal that came since makes the runner build it again.
        strict=step.release or bool(step.signals) or bool(step.opened_gates) or step.first,
    )
    parts, parameters = tuple(compress(_OWN, _needed(step))), _parameters(step)
    for extra in extra_statements:
        parts += ((extra.name, extra.sql),)
        parameters |= extra.parameters
    statement = _statement(advance, parts)
    try:
        row = pool.row(connection, statement, parameters, prepare=prepare)
    except psycopg.errors.ForeignKeyViolation as exc:
        if exc.diag.table_name != blobs.REFERENCES:
            raise
        return CommitResult.NEW_SIGNALS  # the sweeper collected a content: it is written again
    except psycopg.errors.UniqueViolation as exc:
        if exc.diag.constraint_name in {part.overtaken for part in extra_statements}:
            # Another transaction was faster: its signals are read first.
            return CommitResult.NEW_SIGNALS
        if exc.diag.constraint_name != used_approvals.CONSTRAINT:
            raise
        raise Tampered(f"an approval was used before: {exc.diag.message_detail}") from exc
    if row == (1,) or was_written(connection, step.entry):
        failpoints.hit("written", step.kind, step.depth)
        return CommitResult.WRITTEN
    # No row was changed: a signal came since the run was read, or another worker has the run.
    now = leases.read(connection, step.claim.run)
    claim = (step.claim.epoch, step.claim.owner, step.entry.position - 1)
    ours = (now.epoch, now.owner, now.position) == claim
    return CommitResult.NEW_SIGNALS if ours else CommitResult.LOST


def written_after_wait(connection: Connection, step: Step) -> bool:
    """Wait for the end of an interrupted COMMIT, then say whether exactly this step is in the journal.

    That COMMIT holds the run's row. Call this in a transaction.
    """
    leases.lock(connection, step.claim.run)
    return was_written(connection, step.entry)


@cache
def _statement(advance: str, parts: tuple[tuple[str, str], ...]) -> str:
    tables = "".join(f", {name} AS ({sql})" for name, sql in parts)
    return f"WITH run AS ({advance}), entry AS ({APPEND}){tables} SELECT count(*) FROM run"


_WAITS = TypeAdapter(tuple[RateLimitWait, ...])


def _parameters(step: Step) -> dict[str, object]:
    """Return the parameters of the parts that the statement has."""
    limited = rate_limit_waits(step.state)
    parameters = {
        "status": step.status,
        "output": step.output,
        "reason": step.reason,
        "awaits": step.awaits,
        "limited": _WAITS.dump_json(limited).decode() if limited else None,
        "unheard": step.unheard,
        "due": step.due,
        "mailbox": step.signal_version,
        "signals": list(step.signals),
        **leases.parameters(step.claim),
        **step.entry.parameters(),
    }
    if step.continuation is not None:
        parameters |= continuations.parameters(step.continuation.state, step.continuation.lengths)
    if step.opened_gates or step.settled or step.closed:
        parameters |= gates.step_parameters(step.opened_gates, step.settled, step.closed)
    if step.blobs:
        parameters |= blobs.parameters(step.blobs)
    if step.opened_waits or step.ended_waits:
        parameters |= waits.parameters(step.opened_waits, step.ended_waits)
    if step.spent:
        parameters |= used_approvals.parameters(step.spent)
    if step.ended_replies:
        parameters |= partial_replies.parameters(step.ended_replies)
    if step.summary is not None:
        parameters |= blobs.summary_parameters(step.summary, step.summed_up)
    return parameters
