"""Watches buckets: each object below an address becomes an event of its trigger, once by its name and ETag.

A store shows an object once it is whole. It is listed by its names: a cursor in Postgres says how far, so a look asks
for one page, and another sweeper continues. Objects of any size are events, since only small ones are read.
"""

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

from runtime.objects import listing
from runtime.objects.listing import Listing, Object, Unlisted, Unread
from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import sources, trigger_events, watched_files
from runtime.store.tables.triggers.sources import Kind
from runtime.triggers.events import places
from runtime.triggers.events.definition import Definition
from runtime.triggers.sources import contents, keeping, rounds
from runtime.triggers.sources.contents import MAX_CONTENT
from runtime.triggers.sources.keeping import MAX_OPEN, Refused
from runtime.triggers.sources.rounds import Looked, Unreadable

TAKEN = 50  # objects that one transaction takes
AFTER_PROBLEM = timedelta(seconds=60)


def look(_: Connection, stop: threading.Event) -> None:
    """Look at each bucket."""
    rounds.each(Kind.BUCKET, _look, stop)


def _look(connection: Connection, id: UUID, one: Definition) -> Looked:
    """Take the next new objects of a bucket. Raise Unreadable."""
    if not places.allows_bucket(one.bucket):
        raise Unreadable(f"{places.BUCKETS} does not name the bucket")
    if trigger_events.open_count(connection, id) >= MAX_OPEN:
        return Looked()
    after = sources.cursor(connection, id)
    try:
        store = listing.listing_at(one.bucket)
        found = store.after(after)
    except Unlisted as exc:
        raise Unreadable(f"the bucket cannot be read: {exc}", again=AFTER_PROBLEM) from exc
    known = watched_files.stamps(connection, id, one.bucket, [each.name for each in found])
    fresh = [each for each in found if known.get(each.name) != each.stamp]
    taken = fresh[:TAKEN]
    end = taken[-1].name if len(fresh) > TAKEN else ""
    if not end and len(found) == store.max_objects:
        end = found[-1].name
    names = [each.name for each in found]
    watched_files.miss_between(
        connection, id, one.bucket, names, pool.now(connection), after=after, end=end
    )
    for each in taken:
        try:
            _take(connection, id, one, store, each)
        except Unread as exc:
            # The next look begins where this one did.
            return Looked(problem=f"{each.name} cannot be read: {exc}", again=AFTER_PROBLEM)
    sources.turn_to(connection, id, end)
    failpoints.hit("before", Kind.BUCKET.failpoint, 0)
    return Looked(more=end != "")


def _take(connection: Connection, id: UUID, one: Definition, store: Listing, found: Object) -> None:
    """Make an event of an object, or record why it is none. One that has just changed is left to a later look.

    Raise Unread if a later try may succeed.
    """
    address = f"{one.bucket}/{found.name}"
    kept: dict[str, Any] = {"source": f"bucket:{one.bucket}", "id": found.name}
    kept["key"] = ["object", address, found.stamp]
    data: dict[str, Any] = {
        "address": address,
        "name": found.name,
        "size": found.size,
        "etag": found.stamp,
        "changed_at": found.at.isoformat(),
    }
    try:
        if found.size <= MAX_CONTENT:
            content = store.read(found, MAX_CONTENT)
            if content is None:
                return
            data |= contents.told(found.name, contents.text_of(content))
        keeping.keep(connection, id, one, **kept, data=data)
    except Unread as exc:
        if exc.passes:
            raise
        why = f"it cannot be read: {exc}"
        keeping.refuse(connection, id, one, **kept, data={**data, "problem": why}, why=why)
    except Refused as exc:
        why = str(exc)
        keeping.refuse(connection, id, one, **kept, data={**data, "problem": why}, why=why)
    now = pool.now(connection)
    watched_files.see(connection, id, one.bucket, {found.name: found.stamp}, now)
    watched_files.take(connection, id, one.bucket, found.name, found.stamp)
