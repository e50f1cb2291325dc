"""The continuations' keeper: what a suspended run goes on from, one signed row per run.

To write a big document anew at each gate would cost its size each time. So one of more than LARGE bytes
stays live, together with the entries after it, until these come to a quarter of it.

Who takes over from a lost worker folds every entry since the last one. So a run that goes on and on without
suspending is given one as well, each time its entries have doubled, so that all of them together cost a few
times the last one too.

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

LARGE = 64 * 1024
LONG = 4 * LARGE

# Parts of the step statement: the row of a run that suspends, and the end of one that is over.
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


def stays(size: int, tail: int) -> bool:
    """Whether a continuation of `size` bytes stays live with `tail` bytes of entries after it."""
    return size > LARGE and tail * 4 < size


def overdue(size: int, tail: int) -> bool:
    """Whether a run that goes on, with `tail` bytes of entries after one of `size` bytes, is given a new one."""
    return tail > LONG and tail >= size


def put(connection: Connection, continuation: Continuation) -> None:
    """Write the live continuation of a run that no worker has. The caller holds the run's row and sets its base."""
    connection.execute(
        """
        INSERT INTO runtime_continuation (run_id, position, body, mac, key_id)
        VALUES (%(run)s, %(position)s, %(c_body)s, %(c_mac)s, %(c_key_id)s)
        """,
        {
            "run": continuation.run,
            "position": continuation.position,
            **parameters(continuation),
        },
    )


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
