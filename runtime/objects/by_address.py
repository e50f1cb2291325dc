"""Makes the object store of an address."""

from pathlib import Path

from runtime.objects.folder import Folder
from runtime.ports.objects import ObjectStore


def store_at(address: str) -> ObjectStore:
    """Return the store of a folder."""
    return Folder(Path(address))
