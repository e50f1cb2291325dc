"""Makes the object store of an address."""

from pathlib import Path

from runtime.objects.folder import Folder
from runtime.ports.objects import ObjectStore

SCHEMES = ("s3://", "gs://", "az://")


def store_at(address: str) -> ObjectStore:
    """Return the store of a folder or a bucket. Raise ValueError if its configuration is incomplete."""
    if address.startswith("/"):
        return Folder(Path(address))
    from runtime.objects.bucket import Bucket  # most installations have a folder and need no client

    return Bucket(address)
