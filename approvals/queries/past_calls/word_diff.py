"""Finds the words in which two texts differ, within a bound on the work for any texts."""

import re
from collections.abc import Sequence

MAX_EDITS = 100  # words removed or added, beyond which two texts count as entirely different
_WORD = re.compile(r"\w+|\s+|[^\w\s]")

Block = tuple[int, int, int]


def words(text: str) -> list[str]:
    """Split a text into words, blanks and marks. Joined, they are the text again."""
    return _WORD.findall(text)


def blocks(old: Sequence[str], new: Sequence[str]) -> list[Block] | None:
    """Return the equal blocks as (start in old, start in new, length), in order.

    Returns None if more than MOST_EDITS words are removed or added.
    """
    shorter = min(len(old), len(new))
    start = next((n for n in range(shorter) if old[n] != new[n]), shorter)
    rest = shorter - start
    end = next((n for n in range(rest) if old[-1 - n] != new[-1 - n]), rest)
    inner = _shared(old[start : len(old) - end], new[start : len(new) - end])
    if inner is None:
        return None
    ends = (len(old) - end, len(new) - end, end)
    return [(0, 0, start), *((a + start, b + start, size) for a, b, size in inner), ends]


def _shared(old: Sequence[str], new: Sequence[str]) -> list[Block] | None:
    """Run Myers' shortest edit script, up to MOST_EDITS edits."""
    reach = {1: 0}
    trail: list[dict[int, int]] = []
    for edits in range(min(MAX_EDITS, len(old) + len(new)) + 1):
        trail.append(dict(reach))
        for diagonal in range(-edits, edits + 1, 2):
            x = _entered(reach, diagonal, edits)
            y = x - diagonal
            while x < len(old) and y < len(new) and old[x] == new[y]:
                x, y = x + 1, y + 1
            reach[diagonal] = x
            if x >= len(old) and y >= len(new):
                return _walked_back(trail, len(old), len(new))
    return None


def _entered(reach: dict[int, int], diagonal: int, edits: int) -> int:
    """Return the position in the old text at which a diagonal is entered: by an added word, or a removed one."""
    came = diagonal == -edits or (diagonal != edits and reach[diagonal - 1] < reach[diagonal + 1])
    return reach[diagonal + 1] if came else reach[diagonal - 1] + 1


def _walked_back(trail: list[dict[int, int]], x: int, y: int) -> list[Block]:
    found: list[Block] = []
    for edits in range(len(trail) - 1, -1, -1):
        diagonal = x - y
        entered = _entered(trail[edits], diagonal, edits)
        if x > entered:
            found.append((entered, entered - diagonal, x - entered))
        if edits == 0:
            break
        came = entered == trail[edits].get(diagonal + 1) and (
            diagonal == -edits
            or (diagonal != edits and trail[edits][diagonal - 1] < trail[edits][diagonal + 1])
        )
        x = entered if came else entered - 1
        y = x - (diagonal + 1 if came else diagonal - 1)
    return found[::-1]
