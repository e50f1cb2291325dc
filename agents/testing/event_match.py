"""Matches events to waits as Postgres does with `@>` of jsonb."""

from typing import Any


def contains(data: Any, match: Any) -> bool:
    """Say whether `data` contains `match`, as `@>` of jsonb. Order and repeats do not matter."""
    if isinstance(match, dict):
        return isinstance(data, dict) and all(
            key in data and contains(data[key], value) for key, value in match.items()
        )
    if isinstance(match, list):
        return isinstance(data, list) and all(
            any(contains(element, expected) for element in data) for expected in match
        )
    return isinstance(data, bool) is isinstance(match, bool) and bool(data == match)
