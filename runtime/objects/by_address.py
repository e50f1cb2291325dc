"""Makes the object store of an address."""

from pathlib import Path

from runtime.objects.folder import Folder
from runtime.ports.objects import ObjectStore

SCHEMES = ("s3://", "gs://", "az://")


def store_at(address: str, *, marked: bool = True) -> ObjectStore:
    """Return the store of a folder or a bucket. Raise ValueError if its configuration is incomplete.

    Without `marked` it is one that others write to as well, so it needs no object by which it is recognised.
    """
    if address.startswith("/"):
        return Folder(Path(address), marked=marked)
    from runtime.objects.bucket import Bucket  # most installations have a folder and need no client

    return Bucket(address, marked=marked)
