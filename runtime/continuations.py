"""The continuations' keeper: what a suspended run goes on from, one signed row per run."""

from uuid import UUID

from runtime import keyring
from runtime.core import codec
from runtime.core.continuation import Continuation
from runtime.core.errors import Unreadable
from runtime.core.replay import initial
from runtime.database import Connection
from runtime.errors import Tampered
from runtime.keyring import Seal

# Parts of the step statement: the row of a run that suspends, and the end of one that is over.
REPLACE = """
    INSERT INTO runtime_continuation (run_id, position, body, mac, key_id)
    SELECT id, %(position)s, %(c_body)s, %(c_mac)s, %(c_key_id)s FROM run
    WHERE %(c_body)s::text IS NOT NULL
    ON CONFLICT (run_id) DO UPDATE SET position = excluded.position, body = excluded.body,
        mac = excluded.mac, key_id = excluded.key_id
"""
DROP = """
    DELETE FROM runtime_continuation WHERE run_id = (SELECT id FROM run WHERE %(ended)s)
"""


def parameters(continuation: Continuation | None) -> dict[str, object]:
    """The parameters of REPLACE; None leaves the row as it is."""
    if continuation is None:
        return {"c_body": None, "c_mac": None, "c_key_id": None}
    body = codec.encode_continuation(continuation)
    seal = keyring.seal(keyring.CONTINUATION, *_parts(continuation.run, body))
    return {"c_body": body, "c_mac": seal.mac, "c_key_id": seal.key_id}


def load(connection: Connection, run: UUID, base: int) -> Continuation:
    """The verified continuation at position `base`, or the initial one at 0.

    Raises Tampered, KeyMissing, or NewerSchema.
    """
    row = connection.execute(
        "SELECT position, body, mac, key_id FROM runtime_continuation WHERE run_id = %s", (run,)
    ).fetchone()
    if row is None and base == 0:
        return initial(run)
    if row is None:
        raise Tampered("the continuation is missing")
    position, body, mac, key_id = row
    if not keyring.verify(keyring.CONTINUATION, Seal(mac=mac, key_id=key_id), *_parts(run, body)):
        raise Tampered("the continuation does not verify")
    try:
        continuation = codec.decode_continuation(body)
    except Unreadable as exc:
        raise Tampered(f"the continuation: {exc}") from exc
    if (continuation.run, continuation.position) != (run, position):
        raise Tampered("the continuation belongs elsewhere")
    if position != base:
        raise Tampered(f"the continuation is of position {position}, the last one was of {base}")
    return continuation


def _parts(run: UUID, body: str) -> tuple[str, ...]:
    return (str(run), body)
