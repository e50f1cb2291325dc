"""How frames, calls, gates, requests and idempotency keys are named."""

from datetime import datetime
from uuid import UUID

ROOT = "0"
RANDOM_BITS = 74  # of an id that begins with its time


def call_id(turn: int, index: int) -> str:
    """The id of the call at `index` of a turn's reply: ours, never the provider's."""
    return f"c{turn}.{index}"


def turn_mark(turn: int) -> str:
    """What the ids of the calls of a turn begin with, and no others."""
    return f"c{turn}."


def turn_of(call: str) -> int:
    """The turn in which a call was proposed."""
    return int(call[1:].split(".", 1)[0])


def child_frame(frame: str, call: str) -> str:
    """The frame that a delegated call opens below its own frame."""
    return f"{frame}.{call}"


def depth_of(frame: str) -> int:
    """How many frames stand above this one; the root has none."""
    return frame.count("c")


def idempotency_key(run: UUID, frame: str, call: str) -> str:
    """The same for every attempt at the same call; tools hand it to the system they write to."""
    return f"{run}/{frame}/{call}"


def by_time(at: datetime, drawn: int) -> UUID:
    """Make a UUIDv7 (RFC 9562) of a time and 74 random bits.

    Each random id would go to another page of its index, and Postgres would log the whole page.
    """
    high, low = drawn >> 62, drawn & (1 << 62) - 1
    return UUID(int=int(at.timestamp() * 1000) << 80 | 0x7 << 76 | high << 64 | 0b10 << 62 | low)
