"""Reads results that are stored outside their entry, for people who may read a run that refers to them."""

import re
from typing import Any

from django.db.models import Q

from runtime.errors import Tampered
from runtime.models import BlobReference, Run
from runtime.queries.redaction import redact
from runtime.store import pool
from runtime.store.tables import blobs

_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def blob(where: Q, digest: str) -> tuple[Any] | None:
    """Return the value with secrets redacted, in a tuple because the value may be None.

    Return None if no run that meets `where` refers to it, or if the stored text does not match its hash. Raise
    ObjectStoreDown.
    """
    if not _DIGEST.fullmatch(digest):  # such text cannot be stored
        return None
    readable = Run.objects.filter(where, id__in=_users(digest))
    if not readable.exists():
        return None
    try:
        return (redact(blobs.fetch(pool.djangos(), digest)),)
    except Tampered:
        return None


def _users(digest: str) -> Any:
    return BlobReference.objects.filter(content_id=digest).values("run_id")
