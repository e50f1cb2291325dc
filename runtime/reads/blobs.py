"""Reads results that are stored outside their entry, for people who may read a run that refers to them; counts them."""

import json
import re
from typing import Any

from django.db.models import Q

from runtime.errors import KeyMissing, Tampered
from runtime.models import BlobReference, Run
from runtime.ports import wiring
from runtime.reads.redaction import redact
from runtime.store import archived_runs, pool
from runtime.store.tables import blobs, objects

_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def object_totals() -> objects.Totals | None:
    """Return the totals of large results, None without a store. They come from Postgres, so no page waits for it."""
    return None if wiring.objects() is None else objects.totals(pool.djangos())


def blob(condition: Q, digest: str) -> tuple[Any] | None:
    """Return the value with secrets redacted, in a tuple because the value may be None.

    Return None if no run that meets `condition` refers to it, or if the stored text does not match its hash. A content
    of an archived run comes from its file. Raise ObjectStoreDown.
    """
    if not _DIGEST.fullmatch(digest):  # such text cannot be stored
        return None
    users = BlobReference.objects.filter(blob_id=digest).values("run_id")
    readable = Run.objects.filter(condition, id__in=users)
    connection = pool.djangos()
    if readable.exists():
        try:
            return (redact(blobs.fetch(connection, digest)),)
        except Tampered:
            return None
    runs = archived_runs.runs_with(connection, digest)
    if not runs:
        return None
    run = Run.objects.filter(condition, id__in=runs).values_list("id", flat=True).first()
    if run is None:
        return None
    try:
        archived_run = archived_runs.read_for_page(connection, run)
    except (Tampered, KeyMissing):
        return None
    return (redact(json.loads(archived_run.contents[digest])),) if archived_run else None
