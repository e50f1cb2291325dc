"""Watches buckets: each object below an address becomes an event of its trigger, once by its name and ETag.

A store shows an object once it is whole. It is listed by its names: a cursor in Postgres says how far, so a look asks
for one page, and another sweeper continues. Objects of any size are events, since only small ones are read.
"""

from datetime import timedelta
from typing import Any
from uuid import UUID

from runtime.errors import InvalidInput
from runtime.store import failpoints, pool
from runtime.store.object_stores import bucket
from runtime.store.object_stores.bucket import Listing, Object, Unlisted, Unread
from runtime.store.object_stores.stores import SCHEMES
from runtime.store.tables import trigger_sources
from runtime.triggers.event_definition import MAX_LOCATION, EventDefinition
from runtime.triggers.sources import reading

TAKEN = 50  # objects that one transaction takes
AFTER_PROBLEM = timedelta(seconds=60)


def _parse(text: str) -> str:
    address = text.rstrip("/")
    scheme, _, path = address.partition("://")
    is_odd = {"", ".", ".."} & {*path.split("/")}
    if f"{scheme}://" not in SCHEMES or is_odd or len(address) > MAX_LOCATION:
        raise InvalidInput(
            "bucket",
            f"must start with {' '.join(SCHEMES)}, without .. or //, of at most {MAX_LOCATION} characters",
        )
    return address


def _look(connection: pool.Connection, trigger: UUID, definition: EventDefinition) -> reading.Look:
    """Take the next new objects of a bucket. Raise SourceUnreadable."""
    if reading.is_full(connection, trigger):
        return reading.Look()
    address, after = definition.location, trigger_sources.read_cursor(connection, trigger)
    try:
        store = bucket.open_listing(address)
        objects = store.after(after)
    except Unlisted as exc:
        raise reading.SourceUnreadable(
            f"the bucket cannot be read: {exc}", again=AFTER_PROBLEM
        ) from exc
    names = [item.name for item in objects]
    stamps = trigger_sources.list_stamps(connection, trigger, address, names)
    fresh = [item for item in objects if stamps.get(item.name) != item.stamp]
    taking = fresh[:TAKEN]
    end = taking[-1].name if len(fresh) > TAKEN else ""
    if not end and len(objects) == store.max_objects:
        end = objects[-1].name
    now = pool.read_clock(connection)
    trigger_sources.record_missing_between(
        connection, trigger, address, names, now, after=after, end=end
    )
    for item in taking:
        try:
            _take(connection, trigger, definition, store, item)
        except Unread as exc:
            # The next look begins where this one did.
            return reading.Look(problem=f"{item.name} cannot be read: {exc}", again=AFTER_PROBLEM)
    trigger_sources.set_cursor(connection, trigger, end)
    failpoints.hit("before", SOURCE.failpoint, 0)
    return reading.Look(has_more=end != "")


def _take(
    connection: pool.Connection,
    trigger: UUID,
    definition: EventDefinition,
    store: Listing,
    item: Object,
) -> None:
    """Make an event of an item, or record why it is not one. One that has just changed is left to a later look.

    Raise Unread if a later try may succeed.
    """
    bucket = definition.location
    address = f"{bucket}/{item.name}"
    facts: dict[str, Any] = {
        "address": address,
        "name": item.name,
        "size": item.size,
        "etag": item.stamp,
        "changed_at": item.at.isoformat(),
    }
    event: dict[str, Any] = {"id": item.name, "key": ["object", address, item.stamp]}
    try:
        text: dict[str, Any] = {}
        if item.size <= reading.MAX_CONTENT:
            content = store.read(item, reading.MAX_CONTENT)
            if content is None:
                return
            text = reading.parse_content(item.name, reading.decode_content(content))
        reading.keep(connection, trigger, definition, **event, data={**facts, **text})
    except (Unread, reading.NotAnEvent) as exc:
        if isinstance(exc, Unread) and exc.passes:
            raise
        reason = f"it cannot be read: {exc}" if isinstance(exc, Unread) else str(exc)
        reading.refuse(connection, trigger, definition, **event, data=facts, reason=reason)
    now = pool.read_clock(connection)
    trigger_sources.record_seen(connection, trigger, bucket, {item.name: item.stamp}, now)
    trigger_sources.record_taken(connection, trigger, bucket, item.name, item.stamp)


SOURCE: reading.WatchedSource = reading.WatchedSource(
    kind="bucket",
    setting="SIGNOFF_WATCHED_BUCKETS",
    below=", or below",
    help="Each object below this address is an event of this trigger.",
    help_below=", and addresses below",
    item="object",
    items="objects",
    parse=_parse,
    allows=lambda address: any(
        address == root or address.startswith(f"{root}/") for root in SOURCE.allowed
    ),
    look=_look,
    seconds=10.0,  # each look is a request to the store, which counts them
)
