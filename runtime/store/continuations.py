"""The continuations' keeper: what a long run goes on from, one signed row per run.

The journal says everything, so a run that is not long has none: whoever loads it folds all of its entries. A long run
is given one by the step after which the entries since the last one are LONG, and as long as that one. So loading folds
LONG bytes of entries, or as many as the continuation has, and all continuations of a run together cost twice the last.

The continuation of a step that compacts a frame is kept a second time, as the base of its run: entries up to
it may be removed while the run goes on, and whoever reads the journal begins there.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from runtime import keyring
from runtime.core import codec
from runtime.core.continuation import Continuation
from runtime.core.errors import Unreadable
from runtime.core.replay import initial
from runtime.errors import Tampered
from runtime.keyring import Seal
from runtime.store.pool import Connection

LONG = 256 * 1024

# Parts of the step statement: the row of a long run, and the end of one that is over.
REPLACE = """
    INSERT INTO runtime_continuation (run_id, position, body, mac, key_id)
    SELECT id, %(position)s, %(c_body)s, %(c_mac)s, %(c_key_id)s FROM run
    WHERE %(c_body)s::text IS NOT NULL
    ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, body = excluded.body,
        mac = excluded.mac, key_id = excluded.key_id
"""
PIN = """
    INSERT INTO runtime_base (run_id, position, body, mac, key_id)
    SELECT id, %(position)s, %(c_body)s, %(c_mac)s, %(c_key_id)s FROM run
    ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, body = excluded.body,
        mac = excluded.mac, key_id = excluded.key_id, at = clock_timestamp()
"""
DROP = """
    DELETE FROM runtime_continuation WHERE run_id = (SELECT id FROM run WHERE %(ended)s)
"""


def parameters(continuation: Continuation) -> dict[str, object]:
    """The parameters of REPLACE and PIN."""
    body = codec.encode_continuation(continuation)
    seal = keyring.seal(keyring.CONTINUATION, *_parts(continuation.run, body))
    return {"c_body": body, "c_mac": seal.mac, "c_key_id": seal.key_id}


def overdue(size: int, tail: int) -> bool:
    """Whether a run with `tail` bytes of entries after a continuation of `size` bytes is given a new one."""
    return tail > LONG and tail >= size


def load(connection: Connection, run: UUID, base: int) -> tuple[Continuation, int]:
    """The continuation as `checked` gives it."""
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_continuation WHERE run_id = %s", (run,)
    ).fetchone()
    return checked(run, base, row)


def checked(run: UUID, base: int, row: Sequence[Any] | None) -> tuple[Continuation, int]:
    """The verified continuation at position `base` and its size in bytes, or the initial one at 0.

    `row` has position, body, MAC and key. Raises Tampered, KeyMissing, or NewerSchema.
    """
    if row is None and base == 0:
        return initial(run), 0
    if row is None:
        raise Tampered("the continuation is missing")
    continuation = _checked(run, *row)
    if continuation.position != base:
        position = continuation.position
        raise Tampered(f"the continuation is of position {position}, the last one was of {base}")
    return continuation, len(row[1])


def load_base(connection: Connection, run: UUID) -> Continuation | None:
    """The run's base, None if it was never compacted. Raises Tampered, KeyMissing, or NewerSchema."""
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_base WHERE run_id = %s", (run,)
    ).fetchone()
    return None if row is None else _checked(run, *row)


def forget_base(connection: Connection, run: UUID) -> None:
    """Delete it with the journal that goes on from it."""
    connection.execute("DELETE FROM runtime_base WHERE run_id = %s", (run,))


def drop(connection: Connection, run: UUID) -> None:
    """The run goes on nowhere here."""
    connection.execute("DELETE FROM runtime_continuation WHERE run_id = %s", (run,))


def exists(connection: Connection, run: UUID) -> bool:
    """Whether a run has one, whatever it says."""
    found = connection.execute("SELECT 1 FROM runtime_continuation WHERE run_id = %s", (run,))
    return found.fetchone() is not None


def _checked(run: UUID, position: int, body: str, mac: str, key_id: str) -> Continuation:
    if not keyring.verify(keyring.CONTINUATION, Seal(mac=mac, key_id=key_id), *_parts(run, body)):
        raise Tampered("the continuation does not verify")
    try:
        continuation = codec.decode_continuation(body)
    except Unreadable as exc:
        raise Tampered(f"the continuation: {exc}") from exc
    if (continuation.run, continuation.position) != (run, position):
        raise Tampered("the continuation belongs elsewhere")
    return continuation


def _parts(run: UUID, body: str) -> tuple[str, ...]:
    return (str(run), body)
