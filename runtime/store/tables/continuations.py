"""Stores the continuation of a long run, one signed row per run. Its worker loads it first.

The journal contains everything, so a short run has no continuation: a worker that loads it folds all entries. A long
run gets one from a step that releases it, and from a step after LONG bytes of entries since the last one. It leaves
out the parts that the entries contain, most of a long run (runtime.core.documents.continuations), so it is a few KB.

Some runs cannot leave them out: a fork has messages of another run. Such a continuation is written in full, and only
if the entries since the last one have LONG bytes and as many as those before. The continuation of a step that
compacts a frame is stored a second time as the base of its run. Entries up to the base may be deleted while the run
is live. The base and all later continuations of the run are written in full, so none of them needs an entry.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from runtime.core.documents.continuations import (
    Conversations,
    Lengths,
    TextOf,
    decode_continuation,
    encode_continuation,
    no_entries,
)
from runtime.core.run.continuation import Continuation
from runtime.core.run.reducer import make_initial_state
from runtime.core.values.errors import Unreadable
from runtime.errors import Tampered
from runtime.keyring import purposes, signatures
from runtime.keyring.signatures import Seal
from runtime.store.pool import Connection

LONG = 256 * 1024  # bytes of entries, which take about 5 ms to fold
SHORT = 16 * 1024  # bytes of entries that fold faster than a continuation is written

# Parts of the step statement: the row of a long run, and its deletion when the run ends.
REPLACE = """
    INSERT INTO runtime_storedcontinuation (run_id, position, body, mac, key_id)
    SELECT id, %(position)s, %(c_body)s, %(c_mac)s, %(c_key_id)s FROM run
    WHERE %(c_body)s::text IS NOT NULL
    ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, body = excluded.body,
        mac = excluded.mac, key_id = excluded.key_id
"""
PIN = """
    INSERT INTO runtime_compactionbase (run_id, position, body, mac, key_id)
    SELECT id, %(position)s, %(c_body)s, %(c_mac)s, %(c_key_id)s FROM run
    ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, body = excluded.body,
        mac = excluded.mac, key_id = excluded.key_id, at = clock_timestamp()
"""
DROP = """
    DELETE FROM runtime_storedcontinuation WHERE run_id = (SELECT id FROM run)
"""


def build_state_parameters(
    continuation: Continuation, lengths: Lengths | None = None
) -> dict[str, object]:
    """Return the parameters of REPLACE and PIN. `lengths` counts the parts that a brief continuation leaves out."""
    body = encode_continuation(continuation, lengths)
    seal = signatures.seal(purposes.CONTINUATION, *_collect_mac_parts(continuation.run, body))
    return {"c_body": body, "c_mac": seal.mac, "c_key_id": seal.key_id}


def needs_brief(covered: int, tail: int, *, release: bool) -> bool:
    """Say whether to write a brief continuation, given the bytes of entries up to the last one and after it.

    `release` says that the step releases the run.
    """
    return tail > (SHORT if release and covered + tail > LONG else LONG)


def needs_rewrite(covered: int, tail: int) -> bool:
    """Decide as `needs_brief` does for a continuation that is written in full."""
    return tail > LONG and tail >= covered


def load(connection: Connection, run: UUID, base: int, text_of: TextOf) -> Continuation:
    """Return the continuation as `restore_continuation` does."""
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_storedcontinuation WHERE run_id = %s",
        (run,),
    ).fetchone()
    return restore_continuation(run, base, row, text_of)


def restore_continuation(
    run: UUID,
    base: int,
    row: Sequence[Any] | None,
    text_of: TextOf,
    conversations: Conversations | None = None,
) -> Continuation:
    """Return the verified continuation at position `base`, or the initial one at 0.

    `row` has position, body, MAC and key; `text_of` returns the text of a verified entry of the run by its position.
    `conversations` must be empty or have read the first entries; the others it needs are read into it. Raises
    Tampered, KeyMissing, or NewerSchema.
    """
    if row is None and base == 0:
        return make_initial_state(run)
    if row is None:
        raise Tampered("the continuation is missing")
    continuation = _verify_continuation(run, row, text_of, conversations)
    if continuation.position != base:
        position = continuation.position
        raise Tampered(f"the continuation is of position {position}, the last one was of {base}")
    return continuation


def load_base(connection: Connection, run: UUID) -> Continuation | None:
    """Return the run's base, None if it was never compacted. Raises Tampered, KeyMissing, or NewerSchema."""
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_compactionbase WHERE run_id = %s", (run,)
    ).fetchone()
    return None if row is None else _verify_continuation(run, row, no_entries)


def store(connection: Connection, state: Continuation, statement: str = REPLACE) -> None:
    """Write the continuation of a run that no worker has, in full; with PIN write it as the base of the run."""
    connection.execute(
        f"WITH run AS (SELECT %(run)s::uuid AS id) {statement}",
        {"run": state.run, "position": state.position, **build_state_parameters(state)},
    )


def has_continuation(connection: Connection, run: UUID) -> bool:
    """Say whether a run has a continuation, valid or not."""
    cursor = connection.execute(
        "SELECT 1 FROM runtime_storedcontinuation WHERE run_id = %s", (run,)
    )
    return cursor.fetchone() is not None


def _verify_continuation(
    run: UUID, row: Sequence[Any], text_of: TextOf, conversations: Conversations | None = None
) -> Continuation:
    position, body, mac, key_id = row
    if not signatures.verify(
        purposes.CONTINUATION, Seal(mac=mac, key_id=key_id), *_collect_mac_parts(run, body)
    ):
        raise Tampered("the continuation does not verify")
    try:
        continuation = decode_continuation(body, text_of, conversations)
    except Unreadable as exc:
        raise Tampered(f"the continuation: {exc}") from exc
    if (continuation.run, continuation.position) != (run, position):
        raise Tampered("the continuation belongs to another run or position")
    return continuation


def _collect_mac_parts(run: UUID, body: str) -> tuple[str, ...]:
    return (str(run), body)
