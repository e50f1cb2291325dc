"""Makes and reads the ids of frames, calls and gates, idempotency keys, and names of prompts."""

import re
from datetime import datetime
from functools import lru_cache
from uuid import UUID

ROOT = "0"
PROMPT_NAME = r"[a-z][a-z0-9_-]{0,39}(?:/[a-z][a-z0-9_-]{0,39})?"
RANDOM_BITS = 62  # of an id that begins with a timestamp


def make_call_id(turn: int, index: int) -> str:
    """Return the id of the call at `index` of a turn's reply. It is ours, never the provider's."""
    return f"c{turn}.{index}"


@lru_cache(1024)
def turn_mark(turn: int) -> str:
    """Return the prefix that only the call ids of this turn have."""
    return f"c{turn}."


def parse_turn(call: str) -> int:
    """Return the turn in which a call was proposed."""
    return int(call[1:].split(".", 1)[0])


def make_turn_key(frame: str, call: str) -> str:
    """Return the same text for all calls of one turn of one frame, and another for any other turn of the run."""
    return f"{frame}/{parse_turn(call)}"


def make_child_frame_id(frame: str, call: str) -> str:
    """Return the id of the frame that a delegated call opens below its own frame."""
    return f"{frame}.{call}"


@lru_cache(1024)
def compute_depth(frame: str) -> int:
    """Count the frames above this one; the root has none."""
    return frame.count("c")


def is_prompt_name(name: object) -> bool:
    """Say whether a prompt may have this name: `welcome`, or with one folder `hr/onboarding`."""
    return isinstance(name, str) and re.fullmatch(PROMPT_NAME, name) is not None


def make_uuid7(at: datetime, drawn: int) -> UUID:
    """Make a UUIDv7 (RFC 9562, with method 3) of a time and 62 random bits. Ids have the order of their microseconds.

    Random ids would scatter over the index pages, and Postgres would log a whole page for each.
    """
    time, microseconds = divmod(int(at.timestamp()) * 1_000_000 + at.microsecond, 1000)
    fraction = microseconds * 4096 // 1000
    return UUID(int=time << 80 | 0x7 << 76 | fraction << 64 | 0b10 << 62 | drawn)
