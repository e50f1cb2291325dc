"""The id of a run as an argument of a command."""

from argparse import ArgumentTypeError
from uuid import UUID


def run_id(text: str) -> UUID:
    """Parse the id of a run. Raise ArgumentTypeError."""
    try:
        return UUID(text)
    except ValueError:
        raise ArgumentTypeError(f"{text!r} is not the id of a run") from None
