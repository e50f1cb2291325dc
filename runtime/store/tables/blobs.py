"""Stores results too big for an entry, once each by their hash, and which runs refer to them.

A step writes the blobs that its events refer to in its own statement, except those in the object store (`objects`). An
existing blob is only marked as used. The collector deletes only blobs unused for an hour, so none disappears between
the step's check and its commit. The hash is checked whenever a blob is read.

The texts that runs remember of earlier ones are blobs too, with their source. A run continues without one that was
erased.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

from runtime.core.documents import blobs
from runtime.core.documents.blobs import Blob, decode_blob, hash_text
from runtime.core.run.events import Remembered
from runtime.core.values.errors import Unreadable
from runtime.errors import Tampered
from runtime.store.pool import Connection
from runtime.store.tables import objects

REFERENCES = "runtime_blobreference"

# The change of a row whose object may not have been written: from now on the text is in Postgres.
_FILL = "body = CASE WHEN runtime_storedblob.body = '' THEN excluded.body ELSE runtime_storedblob.body END"

# Parts of the statement of a step with contents. The rows are ordered, or two steps could wait for each other. A text
# in the object store is NULL here, and its row exists; a row that another worker reserved may lack its object.
STORE = f"""
    INSERT INTO runtime_storedblob (digest, body)
    SELECT c.digest, c.body FROM run, unnest(%(c_digests)s::text[], %(c_texts)s::text[])
        AS c(digest, body) WHERE c.body IS NOT NULL ORDER BY c.digest
    ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp(), {_FILL}
"""
REFER = """
    INSERT INTO runtime_blobreference (run_id, blob_id)
    SELECT run.id, c.digest FROM run, unnest(%(c_digests)s::text[]) AS c(digest)
    ON CONFLICT DO NOTHING
"""

# A summary of what a run remembers belongs to that run. It is stored only while all that it sums up exists: the locks
# make `forget` wait, and then find it.
SUMMARISE = """
    INSERT INTO runtime_storedblob (digest, body, source, is_summary)
    SELECT %(m_digest)s, %(m_body)s, run.id, true FROM run
    WHERE cardinality(%(m_of)s::text[]) = (
        SELECT count(*) FROM (
            SELECT 1 FROM runtime_storedblob WHERE digest = ANY(%(m_of)s) FOR KEY SHARE) AS there)
    ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp() RETURNING digest
"""
RECALL = """
    INSERT INTO runtime_blobreference (run_id, blob_id) SELECT run.id, summarised.digest FROM run, summarised
    ON CONFLICT DO NOTHING
"""


def build_summary_parameters(summary: Blob, of: Sequence[str]) -> dict[str, object]:
    """Return the parameters of the parts for a summary of the contents `of`."""
    return {"m_digest": summary.digest, "m_body": summary.text, "m_of": list(of)}


def build_blob_parameters(contents: Iterable[Blob]) -> dict[str, object]:
    """Return the parameters of the parts, each content once."""
    once = {blob.digest: None if blob.outside else blob.text for blob in contents}
    return {"c_digests": list(once), "c_texts": list(once.values())}


def fetch(connection: Connection, digest: str) -> Any:
    """Return the value stored under `digest`.

    Raises Tampered if it is missing or does not match, or ObjectStoreDown.
    """
    return json.loads(read_text(connection, digest))


def check(connection: Connection, digests: Iterable[str]) -> None:
    """Raise Tampered unless each content exists and matches its digest. Raises ObjectStoreDown."""
    for digest in sorted(digests):
        read_text(connection, digest)


def check_claimed(connection: Connection, digests: Iterable[str]) -> None:
    """Do the same, without those in the object store: a worker verifies them when it reads them."""
    in_order = sorted(digests)
    rows = connection.execute(
        "SELECT digest FROM runtime_storedblob WHERE digest = ANY(%s) AND body = ''", (in_order,)
    ).fetchall()
    outside = {digest for (digest,) in rows}
    check(connection, (digest for digest in in_order if digest not in outside))


def read_text(connection: Connection, digest: str) -> str:
    """Return the exact text stored under `digest`, checked. Raises Tampered or ObjectStoreDown."""
    row = connection.execute(
        "SELECT body, place FROM runtime_storedblob WHERE digest = %s", (digest,)
    ).fetchone()
    if row is None:
        raise Tampered(f"the content {digest} is missing")
    body: str = row[0]
    if not body:
        return objects.read(digest, row[1])
    if hash_text(body) != digest:
        raise Tampered(f"the content {digest} does not match its digest")
    return body


def store(connection: Connection, run: UUID, texts: Iterable[Blob]) -> None:
    """Store the contents of an imported run, and its references to them."""
    connection.execute(
        f"WITH run AS (SELECT %(run)s::uuid AS id), stored AS ({STORE}) {REFER}",
        {"run": run, **build_blob_parameters(texts)},
    )


def share_contents(connection: Connection, run: UUID, digests: Iterable[str]) -> None:
    """Make a run refer to contents of another one from its first entry on. Raises Tampered if one is missing."""
    unique = set(digests)
    if missing := len(unique) - _refer(connection, run, list(unique)):
        raise Tampered(f"contents are missing: {missing}")


def remember(connection: Connection, run: UUID, texts: Iterable[tuple[UUID, Blob]]) -> None:
    """Store what a new run remembers, each text with its source, and its references to them.

    The caller has locked the sources against retention.
    """
    for source, blob in sorted(texts, key=lambda text: text[1].digest):
        connection.execute(
            """
            WITH kept AS (
                INSERT INTO runtime_storedblob (digest, body, source) VALUES (%(digest)s, %(body)s, %(source)s)
                ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp() RETURNING digest)
            INSERT INTO runtime_blobreference (run_id, blob_id) SELECT %(run)s, digest FROM kept
            ON CONFLICT DO NOTHING
            """,
            {"digest": blob.digest, "body": blob.text, "source": source, "run": run},
        )


def share_remembered(connection: Connection, run: UUID, texts: Sequence[Remembered]) -> None:
    """Make a fork refer to the texts that its original remembers, except for those that were erased."""
    _refer(connection, run, [text.digest for text in texts])


def _refer(connection: Connection, run: UUID, digests: list[str]) -> int:
    """Make a run refer to those of the contents that exist. Returns their number.

    The lock keeps the collector from deleting one of them before the caller's transaction commits.
    """
    return connection.execute(
        """
        INSERT INTO runtime_blobreference (run_id, blob_id)
        SELECT %s, digest FROM runtime_storedblob WHERE digest = ANY(%s) FOR KEY SHARE
        ON CONFLICT DO NOTHING
        """,
        (run, digests),
    ).rowcount


def read_remembered_texts(connection: Connection, digests: Sequence[str]) -> dict[str, str]:
    """Return the texts that were not erased, by digest. Raises Tampered if one does not match its digest."""
    bodies = read_remembered_bodies(connection, digests)
    return {digest: blobs.read_memory(body) for digest, body in bodies.items()}


def read_remembered_bodies(connection: Connection, digests: Sequence[str]) -> dict[str, str]:
    """Return the stored JSON of the texts that were not erased. Raises Tampered."""
    rows = connection.execute(
        "SELECT digest, body FROM runtime_storedblob WHERE digest = ANY(%s)", (list(digests),)
    ).fetchall()
    for digest, body in rows:
        try:
            decode_blob(Blob(digest=digest, text=body))
        except Unreadable as exc:
            raise Tampered(str(exc)) from exc
    return dict(rows)


def forget(connection: Connection, source: UUID) -> None:
    """Delete the texts of a run that others remember, and their summaries. The lock waits for forks and for steps."""
    texts = connection.execute(
        "SELECT digest FROM runtime_storedblob WHERE source = %s FOR UPDATE", (source,)
    )
    if digests := [digest for (digest,) in texts]:
        summaries = connection.execute(
            """
            SELECT digest FROM runtime_storedblob WHERE is_summary AND digest IN (
                SELECT summary.blob_id FROM runtime_blobreference summary
                JOIN runtime_blobreference text ON text.run_id = summary.run_id
                WHERE text.blob_id = ANY(%s)) FOR UPDATE
            """,
            (digests,),
        )
        digests += [digest for (digest,) in summaries]
        connection.execute("DELETE FROM runtime_blobreference WHERE blob_id = ANY(%s)", (digests,))
        connection.execute("DELETE FROM runtime_storedblob WHERE digest = ANY(%s)", (digests,))


def list_own_digests(connection: Connection, run: UUID) -> list[str]:
    """List the contents that a run refers to, without the texts that it remembers of other runs."""
    rows = connection.execute(
        """
        SELECT c.digest FROM runtime_blobreference u JOIN runtime_storedblob c ON c.digest = u.blob_id
        WHERE u.run_id = %s AND c.source IS NULL ORDER BY c.digest
        """,
        (run,),
    )
    return [digest for (digest,) in rows.fetchall()]


def release(connection: Connection, run: UUID, digests: Sequence[str]) -> None:
    """Delete the run's references to these contents."""
    connection.execute(
        "DELETE FROM runtime_blobreference WHERE run_id = %s AND blob_id = ANY(%s)",
        (run, list(digests)),
    )


def collect(connection: Connection, limit: int) -> int:
    """Delete contents that no run refers to and that were unused for an hour. Returns how many.

    The keys of their objects stay, until the sweeper has deleted the objects.
    """
    row = connection.execute(
        """
        WITH gone AS (
            DELETE FROM runtime_storedblob WHERE digest = ANY(ARRAY(
                SELECT digest FROM runtime_storedblob c
                WHERE used_at < clock_timestamp() - interval '1 hour' AND NOT EXISTS (
                    SELECT FROM runtime_blobreference u WHERE u.blob_id = c.digest)
                LIMIT %s FOR UPDATE SKIP LOCKED)) RETURNING place),
        dropped AS (
            INSERT INTO runtime_droppedobject (place) SELECT place FROM gone WHERE place IS NOT NULL)
        SELECT count(*) FROM gone
        """,
        (limit,),
    ).fetchone()
    assert row is not None
    count: int = row[0]
    return count
