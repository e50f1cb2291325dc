"""Stores the prune mark: the position up to which a journal was deleted, with a MAC.

Entries are deleted from the beginning of a journal only, after all of them were verified. The mark has the position
and the MAC of the last deleted entry, so the rest is verified from there. A journal that lost entries without a mark
does not verify, and only a process with the key can write one.

The mark of a live run also has the run's state after the last deleted entry, signed as a continuation. The remaining
entries are folded from there. An ended run loses its whole journal, so its mark has no state.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from runtime.core.documents.continuations import no_entries
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import make_initial_state
from runtime.errors import Tampered
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import continuations


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneMark:
    """Entries up to `position`, whose MAC was `head`, were deleted at `at`. A complete journal has position 0.

    `state` is the row of the continuation there, not verified, if it was read.
    """

    position: int = 0
    head: str = ""
    at: datetime | None = None
    state: Sequence[Any] | None = field(default=None, compare=False, repr=False)


UNPRUNED = PruneMark()


# The columns that `verify_mark` needs, of `p`.
COLUMNS = "p.position, p.head, p.at, p.mac, p.key_id"


def read(connection: Connection, run: UUID) -> PruneMark:
    """Read the mark of a run. Raises Tampered, KeyMissing."""
    row = connection.execute(
        f"""
        SELECT {COLUMNS}, state, state_mac, state_key_id FROM runtime_pruning p WHERE run_id = %s
        """,
        (run,),
    ).fetchone()
    if row is None:
        return UNPRUNED
    mark = verify_mark(run, row[:5])
    return replace(mark, state=None if row[5] is None else (mark.position, *row[5:]))


def verify_mark(run: UUID, row: Sequence[Any]) -> PruneMark:
    """Return the verified mark, given its columns. Raises Tampered, KeyMissing."""
    position, head, at, mac, key_id = row
    mark = PruneMark(position=position, head=head, at=at)
    if not signatures.verify(
        purposes.JOURNAL, Seal(mac=mac, key_id=key_id), *_collect_mac_parts(run, mark)
    ):
        raise Tampered("the prune mark of the journal does not verify")
    return mark


def restore_state(run: UUID, mark: PruneMark) -> Continuation:
    """Return the state after the last deleted entry. Raises Tampered, KeyMissing, or NewerSchema."""
    if mark == UNPRUNED:
        return make_initial_state(run)
    if mark.state is None:
        raise Tampered("the state at the prune mark is missing")
    state = continuations.restore_continuation(run, mark.position, mark.state, no_entries)
    if state.head != mark.head:
        raise Tampered("the state at the prune mark is not that of its entry")
    return state


def write(
    connection: Connection,
    run: UUID,
    *,
    position: int,
    head: str,
    state: Continuation | None = None,
) -> datetime:
    """Write the mark in the transaction that deletes the entries, and return its time.

    A live run needs its `state` after the last deleted entry.
    """
    at = pool.read_clock(connection)
    _write(connection, run, PruneMark(position=position, head=head, at=at), state)
    return at


def restore(connection: Connection, mark: PruneMark, state: Continuation) -> None:
    """Write the mark of a shortened journal again, and the base of its run, whose rows were deleted."""
    _write(connection, state.run, mark, state)
    continuations.store(connection, state, continuations.PIN)


def _write(connection: Connection, run: UUID, mark: PruneMark, state: Continuation | None) -> None:
    seal = signatures.seal(purposes.JOURNAL, *_collect_mac_parts(run, mark))
    stored = {"c_body": None, "c_mac": None, "c_key_id": None}
    connection.execute(
        """
        INSERT INTO runtime_pruning
            (run_id, position, head, at, mac, key_id, state, state_mac, state_key_id)
        VALUES (%(run)s, %(position)s, %(head)s, %(at)s, %(mac)s, %(key_id)s,
            %(c_body)s, %(c_mac)s, %(c_key_id)s)
        ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, head = excluded.head,
            at = excluded.at, mac = excluded.mac, key_id = excluded.key_id,
            state = excluded.state, state_mac = excluded.state_mac,
            state_key_id = excluded.state_key_id
        """,
        {
            "run": run,
            "position": mark.position,
            "head": mark.head,
            "at": mark.at,
            "mac": seal.mac,
            "key_id": seal.key_id,
            **(stored if state is None else continuations.build_state_parameters(state)),
        },
    )


def _collect_mac_parts(run: UUID, mark: PruneMark) -> tuple[str, ...]:
    """Return the MAC's parts. An entry's parts begin with the run's id, so neither passes for the other."""
    at = "" if mark.at is None else mark.at.astimezone(UTC).isoformat()
    return ("pruned", str(run), str(mark.position), mark.head, at)
