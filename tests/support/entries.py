"""The stored entries of runs, as text."""

from typing import Any

from django.db.models import QuerySet

from runtime.models import JournalEntry
from runtime.queries.journal import stored


def bodies(rows: QuerySet[JournalEntry]) -> list[str]:
    """The text of each row."""
    return [body for _, body, _ in stored(rows)]


def body(**where: Any) -> str:
    """The text of the one entry with these columns."""
    (found,) = bodies(JournalEntry.objects.filter(**where))
    return found


def mac(**where: Any) -> str:
    """The MAC of the one entry with these columns."""
    ((_, _, found),) = stored(JournalEntry.objects.filter(**where))
    return found
