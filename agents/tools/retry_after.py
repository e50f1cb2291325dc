"""Reads how long another side asks to wait."""

from datetime import UTC, datetime
from email.utils import parsedate_to_datetime


def seconds_of(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3), or None if it has none."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return None
    if moment.tzinfo is None:
        return None
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())
