"""Objects and their rows: a kill in between loses no object, and leaves none without a row."""

import threading
from uuid import UUID

import pytest
from django.db import transaction

from runtime.core.documents.blobs import Blob, make_blob
from runtime.errors import ObjectStoreDown
from runtime.models import DroppedObject
from runtime.models import StoredBlob as Row
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.tables import blobs, objects
from runtime.upkeep import retention, sweeper
from tests.support.engine import Death, at_failpoint, die
from tests.support.object_stores import BOTH, Breakable
from tests.support.threads import WITHIN, in_thread, wait_until_blocked

pytestmark = pytest.mark.usefixtures("object_store")
BLOB = make_blob('"large"')


def keep(own: Connection, blob: Blob = BLOB) -> str:
    """Store a content, as a step does before its commit. Return its key."""
    key = objects.reserve(own, [blob])[blob.digest]
    objects.put(key, blob)
    return key


def sweep(own: Connection) -> None:
    """Collect, when every content was used long ago."""
    own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '61 minutes'")
    retention.enforce(own, threading.Event())
    sweeper.look_after_objects(own, threading.Event())


def left(store: Breakable) -> tuple[int, int, int]:
    return Row.objects.count(), DroppedObject.objects.count(), len(store.keys())


def test_a_content_is_stored_once_under_one_key(own: Connection, object_store: Breakable) -> None:
    first = keep(own)
    own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '61 minutes'")
    assert keep(own) == first
    retention.enforce(own, threading.Event())  # a step may be about to name it
    assert left(object_store) == (1, 0, 1)
    assert objects.count_objects(own) == objects.Totals(objects=1, bytes=len(BLOB.text), dropped=0)
    assert blobs.fetch(own, BLOB.digest) == "large"


@BOTH
@pytest.mark.parametrize("point", ["reserved:object", "put:object"])
def test_what_a_killed_worker_left_is_collected_after_an_hour(
    own: Connection, object_store: Breakable, point: str
) -> None:
    with at_failpoint(point, die), pytest.raises(Death):
        keep(own)
    retention.enforce(own, threading.Event())
    assert left(object_store)[0] == 1, "another worker may be about to commit"
    sweep(own)
    assert left(object_store) == (0, 0, 0)


@BOTH
def test_a_killed_sweeper_leaves_the_key_for_another_one(
    own: Connection, object_store: Breakable
) -> None:
    keep(own)
    with at_failpoint("deleted:object", die), pytest.raises(Death):
        sweep(own)
    assert left(object_store) == (0, 1, 0)
    sweep(own)
    assert left(object_store) == (0, 0, 0)


def test_two_sweepers_at_once_delete_an_object_once(
    own: Connection, object_store: Breakable
) -> None:
    kept = keep(own), keep(own, make_blob('"other"'))
    with pool.open_own() as other, at_failpoint("deleted:object", lambda: sweep(other)):
        sweep(own)
    assert left(object_store) == (0, 0, 0)
    assert len(set(kept)) == 2


def test_a_content_stored_while_two_collectors_delete_it_has_a_new_object(
    own: Connection, object_store: Breakable
) -> None:
    first = keep(own)
    own.execute("UPDATE runtime_storedblob SET used_at = now() - interval '61 minutes'")
    again: list[str] = []

    def store_again() -> None:
        with pool.open_own() as worker:
            again.append(keep(worker))

    with transaction.atomic():
        assert blobs.collect(pool.use_django_connection(), 10) == 1
        assert blobs.collect(own, 10) == 0, "the other collector has it"
        worker = in_thread(store_again)
        wait_until_blocked("INSERT INTO runtime_storedblob")
    worker.join(WITHIN)
    sweeper.look_after_objects(own, threading.Event())
    assert object_store.keys() == again != [first]
    assert blobs.fetch(own, BLOB.digest) == "large"


def test_a_late_deletion_does_not_hit_the_same_content_stored_again(
    own: Connection, object_store: Breakable
) -> None:
    first = keep(own)
    object_store.is_down = True
    with pytest.raises(ObjectStoreDown):
        sweep(own)
    assert left(object_store) == (0, 1, 1)
    object_store.is_down = False
    second = keep(own)
    assert first != second
    assert objects.delete_dropped(own, threading.Event()) == 1
    assert blobs.fetch(own, BLOB.digest) == "large"
    assert left(object_store) == (1, 0, 1)


def test_a_reserved_row_is_filled_by_a_step_that_stores_in_postgres(own: Connection) -> None:
    """The worker that reserved it may have died before it wrote the object."""
    objects.reserve(own, [BLOB])
    blobs.store(own, _a_run(own), [BLOB])
    assert blobs.fetch(own, BLOB.digest) == "large"
    assert objects.reserve(own, [BLOB]) == {}, "there is nothing to write"


def _a_run(own: Connection) -> UUID:
    row = own.execute(
        "INSERT INTO runtime_run (id, agent, requester, input, status)"
        " VALUES (gen_random_uuid(), 'a', 'ada', '{}', 'queued') RETURNING id"
    ).fetchone()
    assert row is not None
    run: UUID = row[0]
    return run
