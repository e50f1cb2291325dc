"""Reads the ids in addresses of the API."""

from uuid import UUID

from approvals.errors import ApprovalError, NotFound


def id_of(text: str, unknown: type[ApprovalError] = NotFound) -> UUID:
    """Return the id. Raise the error of an `unknown` one for a text that is none."""
    try:
        return UUID(text)
    except ValueError as exc:
        raise unknown from exc
