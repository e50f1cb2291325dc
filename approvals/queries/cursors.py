"""Encodes the place of a row in a list, from which the next page continues."""

import base64
import binascii
from datetime import datetime
from uuid import UUID

from runtime.errors import InvalidInput

Place = tuple[datetime | None, datetime, UUID]


def encoded(*parts: datetime | UUID | None) -> str:
    """Encode deadline, time and id of the last row of a page, or time and id."""
    words = [part.isoformat() if isinstance(part, datetime) else str(part or "") for part in parts]
    return base64.urlsafe_b64encode("|".join(words).encode()).decode().rstrip("=")


def decoded(cursor: str, *, parts: int) -> Place:
    """Return deadline, time and id; the deadline is None if it is empty or not among the parts.

    Raise InvalidInput naming `cursor`.
    """
    try:
        text = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)).decode()
        *deadlines, moment, last = text.split("|")
        (deadline,) = deadlines if parts == 3 else [*deadlines, ""]
        until = datetime.fromisoformat(deadline) if deadline else None
        at, row = datetime.fromisoformat(moment), UUID(last)
    except (ValueError, binascii.Error) as exc:
        raise InvalidInput("cursor", "is not a cursor of this list") from exc
    if at.tzinfo is None or (until is not None and until.tzinfo is None):
        raise InvalidInput("cursor", "is not a cursor of this list")
    return until, at, row
