"""The continuation of a long run, one signed row per run: the state that its worker loads first.

The journal says everything, so a run that is not long has none: a worker that loads it folds all of its entries. A long
run is given one by a step that releases it, and by one after which the entries since the last one are LONG. It leaves
out what the entries tell, which are most of a long run (runtime.core.documents.conversations), so it is a few KB.

Not every run can do without the rest: a fork has messages of another run. Such a continuation is written out, and only
when the entries since the last one are LONG, and as long as those before. The continuation of a step that compacts a
frame is kept a second time, as the base of its run: entries up to it may be removed while the run is live. So it
needs no entry, and neither do those that follow it.
"""

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from runtime.core.continuation import Continuation
from runtime.core.documents import codec
from runtime.core.documents.codec import TextOf, no_entries
from runtime.core.documents.conversations import Conversations, Told
from runtime.core.errors import Unreadable
from runtime.core.machine.replay import initial
from runtime.errors import Tampered
from runtime.keyring import macs, purposes
from runtime.keyring.macs import Seal
from runtime.store.pool import Connection

LONG = 256 * 1024  # bytes of entries, which take some 5 ms to fold
SHORT = 16 * 1024  # bytes of entries that are folded faster than a continuation is written

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
    DELETE FROM runtime_continuation WHERE run_id = (SELECT id FROM run)
"""


def parameters(continuation: Continuation, told: Told | None = None) -> dict[str, object]:
    """The parameters of REPLACE and PIN. `told` says what a brief continuation leaves out."""
    body = codec.encode_continuation(continuation, told)
    seal = macs.seal(purposes.CONTINUATION, *_parts(continuation.run, body))
    return {"c_body": body, "c_mac": seal.mac, "c_key_id": seal.key_id}


def needs_brief(covered: int, tail: int, *, release: bool) -> bool:
    """Whether a run is given a brief one, with as many bytes of entries up to its last one and after it.

    `release` says that the step releases the run.
    """
    return tail > (SHORT if release and covered + tail > LONG else LONG)


def needs_rewrite(covered: int, tail: int) -> bool:
    """As `needs_brief`, of one that is written out."""
    return tail > LONG and tail >= covered


def load(connection: Connection, run: UUID, base: int, text_of: TextOf) -> Continuation:
    """The continuation as `checked` gives it."""
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_continuation WHERE run_id = %s", (run,)
    ).fetchone()
    return checked(run, base, row, text_of)


def checked(
    run: UUID,
    base: int,
    row: Sequence[Any] | None,
    text_of: TextOf,
    conversations: Conversations | None = None,
) -> Continuation:
    """The verified continuation at position `base`, or the initial one at 0.

    `row` has position, body, MAC and key; `text_of` gives the text of a verified entry of the run by its position.
    `conversations` have read no entry, or the first ones; those that the continuation needs are read into them.
    Raises Tampered, KeyMissing, or NewerSchema.
    """
    if row is None and base == 0:
        return initial(run)
    if row is None:
        raise Tampered("the continuation is missing")
    continuation = _checked(run, row, text_of, conversations)
    if continuation.position != base:
        position = continuation.position
        raise Tampered(f"the continuation is of position {position}, the last one was of {base}")
    return continuation


def load_base(connection: Connection, run: UUID) -> Continuation | None:
    """The run's base, None if it was never compacted. Raises Tampered, KeyMissing, or NewerSchema."""
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_base WHERE run_id = %s", (run,)
    ).fetchone()
    return None if row is None else _checked(run, row, no_entries)


def delete_base(connection: Connection, run: UUID) -> None:
    """Delete it with the journal that goes on from it."""
    connection.execute("DELETE FROM runtime_base WHERE run_id = %s", (run,))


def drop(connection: Connection, run: UUID) -> None:
    """The run goes on nowhere here."""
    connection.execute("DELETE FROM runtime_continuation WHERE run_id = %s", (run,))


def exists(connection: Connection, run: UUID) -> bool:
    """Whether a run has one, whatever it says."""
    found = connection.execute("SELECT 1 FROM runtime_continuation WHERE run_id = %s", (run,))
    return found.fetchone() is not None


def _checked(
    run: UUID, row: Sequence[Any], text_of: TextOf, conversations: Conversations | None = None
) -> Continuation:
    position, body, mac, key_id = row
    if not macs.verify(purposes.CONTINUATION, Seal(mac=mac, key_id=key_id), *_parts(run, body)):
        raise Tampered("the continuation does not verify")
    try:
        continuation = codec.decode_continuation(body, text_of, conversations)
    except Unreadable as exc:
        raise Tampered(f"the continuation: {exc}") from exc
    if (continuation.run, continuation.position) != (run, position):
        raise Tampered("the continuation belongs elsewhere")
    return continuation


def _parts(run: UUID, body: str) -> tuple[str, ...]:
    return (str(run), body)
