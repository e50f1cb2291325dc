"""The journal's keeper: append-only entries, each bearing the MAC of the one before.

The MAC covers run, position, the previous MAC and the exact bytes of the body. So an entry that
was edited, dropped, inserted, swapped or put back from an older state does not verify, and nothing
that fails to verify is ever acted on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID, uuid4

from runtime import keyring
from runtime.core import codec
from runtime.core.continuation import Continuation
from runtime.core.errors import CoreError, NewerSchema
from runtime.core.replay import Entry, step
from runtime.database import Connection
from runtime.errors import Tampered
from runtime.keyring import Seal

INSERT = """
    INSERT INTO runtime_journalentry (run_id, position, body, mac, key_id, commit_id)
"""

# The part of the step statement that appends; `run` is the row that the step was allowed to change.
APPEND = f"""{INSERT}
    SELECT id, %(position)s, %(body)s, %(mac)s, %(key_id)s, %(commit_id)s FROM run
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """One entry ready to be written. `commit_id` tells our own entry from another worker's."""

    run: UUID
    position: int
    body: str
    seal: Seal
    commit_id: UUID

    def parameters(self) -> dict[str, object]:
        return {
            "position": self.position,
            "body": self.body,
            "mac": self.seal.mac,
            "key_id": self.seal.key_id,
            "commit_id": self.commit_id,
        }


def seal(run: UUID, position: int, previous: str, entry: Entry) -> Sealed:
    """Encode and sign the entry that follows the one whose MAC is `previous` (empty for the first)."""
    body = codec.encode_entry(entry)
    return Sealed(
        run=run,
        position=position,
        body=body,
        seal=keyring.seal(keyring.JOURNAL, str(run), str(position), previous, body),
        commit_id=uuid4(),
    )


def append_first(connection: Connection, sealed: Sealed) -> None:
    """Write the entry that starts a run, inside the caller's transaction."""
    connection.execute(
        f"{INSERT} VALUES (%(run)s, %(position)s, %(body)s, %(mac)s, %(key_id)s, %(commit_id)s)",
        {"run": sealed.run, **sealed.parameters()},
    )


def replay(connection: Connection, base: Continuation, *, position: int, head: str) -> Continuation:
    """Verify every entry, and fold those after `base` up to exactly `position`, whose MAC must be `head`.

    Entries before `base` change nothing any more, but people read them and decide on what they read.
    Raises Tampered, KeyMissing, or NewerSchema.
    """
    now, last = base, 0
    for sealed in _verified(connection, base.run):
        if sealed.position == base.position and sealed.seal.mac != base.head:
            raise Tampered(f"journal entry {sealed.position} is not that of the continuation")
        if sealed.position > base.position:
            now = _fold(now, sealed)
        last = sealed.position
    if (last, now.position, now.head) != (position, position, head):
        raise Tampered(f"the journal ends at entry {last}, the run at {position}")
    return now


def holds(connection: Connection, sealed: Sealed) -> bool:
    """Whether this very entry was written: how a cut-off COMMIT is told from a lost lease."""
    row = connection.execute(
        "SELECT commit_id FROM runtime_journalentry WHERE run_id = %s AND position = %s",
        (sealed.run, sealed.position),
    ).fetchone()
    return row is not None and row[0] == sealed.commit_id


def make_partitions(connection: Connection) -> None:
    """Keep this month's partition and those of the next two; cheap when they are there."""
    connection.execute("SELECT abeyance_make_partitions(2)")


def _fold(now: Continuation, sealed: Sealed) -> Continuation:
    try:
        return step(now, codec.decode_entry(sealed.body).events, head=sealed.seal.mac)
    except NewerSchema:
        raise
    except CoreError as exc:
        raise Tampered(f"journal entry {sealed.position}: {exc}") from exc


def _verified(connection: Connection, run: UUID) -> Iterator[Sealed]:
    """Every entry, from the first on, as long as each follows the one before."""
    previous = ""
    for count, sealed in enumerate(_all(connection, run), start=1):
        if sealed.position != count:
            raise Tampered(f"journal entry {count} is missing")
        parts = (str(run), str(count), previous, sealed.body)
        if not keyring.verify(keyring.JOURNAL, sealed.seal, *parts):
            raise Tampered(f"journal entry {count} does not verify")
        previous = sealed.seal.mac
        yield sealed


def _all(connection: Connection, run: UUID) -> Iterator[Sealed]:
    rows = connection.execute(
        """
        SELECT position, body, mac, key_id, commit_id FROM runtime_journalentry
        WHERE run_id = %s ORDER BY position
        """,
        (run,),
    )
    for place, body, mac, key_id, commit_id in rows:
        yield Sealed(
            run=run,
            position=place,
            body=body,
            seal=Seal(mac=mac, key_id=key_id),
            commit_id=commit_id,
        )
