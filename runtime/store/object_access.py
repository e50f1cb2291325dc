"""Gives the object store of this process, and reads its objects, which others may have changed."""

from runtime.errors import ObjectStoreDown, Tampered
from runtime.ports import wiring
from runtime.ports.objects import ObjectStore

MAX_BYTES = 64 * 1024 * 1024


def store() -> ObjectStore:
    """Return the store of this process. Raises ObjectStoreDown without one."""
    store = wiring.objects()
    if store is None:
        raise ObjectStoreDown("SIGNOFF_OBJECT_STORE is not set in this process")
    return store


def fetch(key: str) -> bytes:
    """Return an object. Raises ObjectStoreDown, or Tampered for one that is missing, too large or behind a link."""
    try:
        data = store().get(key, max_bytes=MAX_BYTES)
    except ValueError as exc:
        raise Tampered(f"the object cannot be read: {exc}") from exc
    if data is None:
        raise Tampered(f"the object {key} is missing")
    return data
