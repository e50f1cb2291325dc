"""Stores results too big for an entry, once each by their hash, and which runs refer to them.

A step writes the blobs that its events refer to in its own statement. An existing blob is only marked as used. The
collector deletes only blobs unused for an hour, so none disappears between the step's check and its commit. The hash
is checked whenever a blob is read.
"""

from collections.abc import Iterable
from typing import Any
from uuid import UUID

from runtime.core.documents.blobs import Blob, value_of
from runtime.core.errors import Unreadable
from runtime.errors import Tampered
from runtime.store.pool import Connection

# Parts of the statement of a step with contents. The rows are ordered, or two steps could wait for each other.
STORE = """
    INSERT INTO runtime_content (digest, body)
    SELECT c.digest, c.body FROM run, unnest(%(c_digests)s::text[], %(c_texts)s::text[])
        AS c(digest, body) ORDER BY c.digest
    ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp()
"""
REFER = """
    INSERT INTO runtime_contentuse (run_id, content_id)
    SELECT run.id, c.digest FROM run, unnest(%(c_digests)s::text[]) AS c(digest)
    ON CONFLICT DO NOTHING
"""


def parameters(contents: Iterable[Blob]) -> dict[str, object]:
    """Return the parameters of the parts, each content once."""
    once = {content.digest: content.text for content in contents}
    return {"c_digests": list(once), "c_texts": list(once.values())}


def fetch(connection: Connection, digest: str) -> Any:
    """Return the value stored under `digest`. Raises Tampered if it is missing or does not match."""
    row = connection.execute(
        "SELECT body FROM runtime_content WHERE digest = %s", (digest,)
    ).fetchone()
    if row is None:
        raise Tampered(f"the content {digest} is missing")
    try:
        return value_of(Blob(digest=digest, text=row[0]))
    except Unreadable as exc:
        raise Tampered(str(exc)) from exc


def check(connection: Connection, digests: Iterable[str]) -> None:
    """Raise Tampered unless each content exists and matches its digest."""
    for digest in sorted(digests):
        fetch(connection, digest)


def text(connection: Connection, digest: str) -> str:
    """Return the exact text stored under `digest`, checked. Raises Tampered."""
    fetch(connection, digest)
    row = connection.execute(
        "SELECT body FROM runtime_content WHERE digest = %s", (digest,)
    ).fetchone()
    assert row is not None  # it existed a moment ago, in the same transaction
    found: str = row[0]
    return found


def store(connection: Connection, run: UUID, texts: Iterable[Blob]) -> None:
    """Store the contents of an imported run, and its references to them."""
    for content in sorted(texts, key=lambda content: content.digest):
        connection.execute(
            """
            INSERT INTO runtime_content (digest, body) VALUES (%s, %s)
            ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp()
            """,
            (content.digest, content.text),
        )
        share(connection, run, [content.digest])


def share(connection: Connection, run: UUID, digests: Iterable[str]) -> None:
    """Make a run refer to contents of another one from its first entry on. Raises Tampered if one is missing."""
    wanted = set(digests)
    done = connection.execute(
        """
        INSERT INTO runtime_contentuse (run_id, content_id)
        SELECT %s, digest FROM runtime_content WHERE digest = ANY(%s) FOR KEY SHARE
        """,
        (run, list(wanted)),
    )
    if done.rowcount != len(wanted):
        raise Tampered(f"contents are missing: {len(wanted) - done.rowcount}")


def delete_for_run(connection: Connection, run: UUID) -> None:
    """Delete the run's references."""
    connection.execute("DELETE FROM runtime_contentuse WHERE run_id = %s", (run,))


def collect(connection: Connection, limit: int) -> int:
    """Delete contents that no run refers to and that were unused for an hour. Returns how many."""
    done = connection.execute(
        """
        DELETE FROM runtime_content WHERE digest = ANY(ARRAY(
            SELECT digest FROM runtime_content c
            WHERE used_at < clock_timestamp() - interval '1 hour' AND NOT EXISTS (
                SELECT FROM runtime_contentuse u WHERE u.content_id = c.digest)
            LIMIT %s FOR UPDATE SKIP LOCKED))
        """,
        (limit,),
    )
    return done.rowcount
