"""Counts the large results in the object store, for an installation that has one."""

from runtime.ports import wiring
from runtime.store import pool
from runtime.store.tables import objects
from runtime.store.tables.objects import Totals


def object_totals() -> Totals | None:
    """Return the totals, None without a store. They come from Postgres: a store that is down delays no page."""
    return None if wiring.objects() is None else objects.totals(pool.djangos())
