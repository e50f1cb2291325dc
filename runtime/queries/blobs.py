"""Reads results that are stored outside their entry, for people who may read a run that refers to them."""

import re
from typing import Any

from django.db.models import Q

from runtime.core.documents import blobs
from runtime.core.errors import Unreadable
from runtime.models import Blob, BlobReference, Run
from runtime.queries.redaction import redact

_DIGEST = re.compile("sha256:[0-9a-f]{64}")


def blob(where: Q, digest: str) -> tuple[Any] | None:
    """Return the value with secrets redacted, in a tuple because the value may be None.

    Return None if no run that meets `where` refers to it, or if the stored text does not match its hash.
    """
    if not _DIGEST.fullmatch(digest):  # such text cannot be stored
        return None
    readable = Run.objects.filter(where, id__in=_users(digest))
    body = Blob.objects.filter(digest=digest).values_list("body", flat=True).first()
    if body is None or not readable.exists():
        return None
    try:
        return (redact(blobs.value_of(blobs.Blob(digest=digest, text=body))),)
    except Unreadable:
        return None


def _users(digest: str) -> Any:
    return BlobReference.objects.filter(content_id=digest).values("run_id")
