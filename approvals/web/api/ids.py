"""Reads the ids in addresses of the API."""

from uuid import UUID

from approvals.errors import NotFound


def id_of(text: str) -> UUID:
    """Return the id. Raise NotFound for a text that is none."""
    try:
        return UUID(text)
    except ValueError as exc:
        raise NotFound from exc
