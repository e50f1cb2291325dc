"""Keeps large contents in the object store. Postgres has their rows, each with the key of its object.

A worker reserves the row in a transaction of its own, then writes the object, then commits the step that refers to the
row. So Postgres knows every object. An object whose step was never committed is collected with its row, like every
content that no run refers to.

A row that is deleted leaves its key in `runtime_droppedobject`, in the same transaction, and the sweeper deletes the
object of that key. A new row of the same content has a new key, so no deletion hits an object that is still needed.
"""

import logging
import secrets
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from runtime.core.documents.blobs import Blob, hash_text
from runtime.errors import ObjectStoreDown, Tampered
from runtime.ports import wiring
from runtime.ports.objects import ObjectStore
from runtime.store import failpoints
from runtime.store.pool import Connection

log = logging.getLogger(__name__)

DROPPED = 100  # objects that one query names
MAX_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The objects that rows refer to, their bytes, and the objects that wait for their deletion."""

    objects: int
    bytes: int
    dropped: int


def reserve(connection: Connection, blobs: Sequence[Blob]) -> dict[str, str]:
    """Reserve a row for each content, and return the keys of those that are not in Postgres, by digest.

    The row of a known content counts as used now, so the sweeper leaves it alone for an hour. A new store is marked
    first, or the sweeper would take it for another one if the worker died before its first object. Raises
    ObjectStoreDown.
    """
    store().prepare()
    outside = {}
    for blob in sorted(blobs, key=lambda blob: blob.digest):
        name = blob.digest.removeprefix("sha256:")
        new_key = f"contents/{name[:2]}/{name}-{secrets.token_hex(6)}"  # no object had it before
        row = connection.execute(
            """
            INSERT INTO runtime_storedblob (digest, body, place, size) VALUES (%s, '', %s, %s)
            ON CONFLICT (digest) DO UPDATE SET used_at = clock_timestamp()
            RETURNING place, body = ''
            """,
            (blob.digest, new_key, len(blob.text)),
        ).fetchone()
        assert row is not None
        key, is_outside = row
        if is_outside:
            outside[blob.digest] = key
    return outside


def put(key: str, blob: Blob) -> None:
    """Write the object of a reserved row. Raises ObjectStoreDown."""
    failpoints.hit("reserved", "object", 0)
    store().put(key, blob.text.encode())
    failpoints.hit("put", "object", 0)


def read(digest: str, key: str) -> str:
    """Return the text of a content from its object. Raises Tampered if it is missing or altered, or ObjectStoreDown."""
    data = fetch(key)
    try:
        text = data.decode("ascii")
    except UnicodeDecodeError:
        text = ""
    if hash_text(text) != digest:
        raise Tampered(f"the object {key} does not match the digest of its content {digest}")
    return text


def drop(connection: Connection, table: str, condition: str, value: object) -> None:
    """Delete the rows of files that meet a condition. The sweeper deletes their objects."""
    connection.execute(
        f"""
        WITH gone AS (DELETE FROM {table} WHERE {condition} RETURNING place)
        INSERT INTO runtime_droppedobject (place)
        SELECT place FROM gone WHERE place IS NOT NULL ON CONFLICT DO NOTHING
        """,
        (value,),
    )


def delete_dropped(connection: Connection, stop: threading.Event) -> int:
    """Delete the objects of deleted rows, until `stop`. Returns how many. Raises ObjectStoreDown.

    Another sweeper may delete the same ones: a deletion can be repeated. A key that the store refuses was not made
    here, and would stop all later deletions: its row is deleted.
    """
    deleted = 0
    while not stop.is_set():
        rows = connection.execute(
            "SELECT place FROM runtime_droppedobject ORDER BY at LIMIT %s", (DROPPED,)
        ).fetchall()
        for (key,) in rows:
            try:
                store().delete(key)
            except ValueError as exc:
                log.critical("An object is not deleted, its row was changed: %s", exc)
            failpoints.hit("deleted", "object", 0)
            connection.execute("DELETE FROM runtime_droppedobject WHERE place = %s", (key,))
            deleted += 1
        if len(rows) < DROPPED:
            break
    return deleted


def count_objects(connection: Connection) -> Totals:
    """Count the objects."""
    row = connection.execute(
        """
        SELECT count(*), coalesce(sum(size), 0)::bigint, (SELECT count(*) FROM runtime_droppedobject)
        FROM runtime_storedblob WHERE place IS NOT NULL
        """
    ).fetchone()
    assert row is not None
    return Totals(objects=row[0], bytes=row[1], dropped=row[2])


def store() -> ObjectStore:
    """Return the store of this process. Raises ObjectStoreDown without one."""
    store = wiring.find_object_store()
    if store is None:
        raise ObjectStoreDown("SIGNOFF_OBJECT_STORE is not set in this process")
    return store


def fetch(key: str) -> bytes:
    """Return an object. Raises ObjectStoreDown, or Tampered for one that is missing, too large or behind a link."""
    try:
        data = store().get(key, max_bytes=MAX_BYTES)
    except ValueError as refusal:
        raise Tampered(f"the object cannot be read: {refusal}") from refusal
    if data is None:
        raise Tampered(f"the object {key} is missing")
    return data
