"""Counts refused calls and denials: for the whole run, or for one item of a list, which they end instead of the run.

The frame of an item works apart from the others: its model never learns what people decided about them.
"""

from collections.abc import Iterable

from runtime.core.continuation import (
    MAX_DENIALS,
    MAX_REFUSALS,
    Continuation,
    Denial,
    Frame,
)
from runtime.core.fast_replace import replace
from runtime.core.limits import plain


def item_of(now: Continuation, frame: Frame) -> Frame | None:
    """Return the innermost item that the frame works on, perhaps itself; None if it is part of none."""
    found: Frame | None = frame
    while found is not None and not found.item:
        found = None if found.parent is None else now.frames.get(found.parent)
    return found


def count_refusal(now: Continuation, frame: Frame) -> tuple[Continuation, Frame]:
    """Count a refused call of the frame. Return the run, and the frame, which may have the count."""
    item = item_of(now, frame)
    if item is None:
        return replace(now, refusals=now.refusals + 1), frame
    counted = replace(item, refusals=item.refusals + 1)
    return (now, counted) if item is frame else (now.with_frame(counted), frame)


def why_item_ends(now: Continuation, frame: Frame) -> str:
    """Return why the model of a frame is called no more; empty if it is."""
    item = item_of(now, frame)
    if item is None:
        return ""
    if item.refusals >= MAX_REFUSALS:
        return plain(f"{item.refusals} calls of this item that could not be made")
    below = (f"{item.id}/", f"{item.id}.")
    return too_many_denials(
        denial
        for denial in now.denials.values()
        if not denial.changes and denial.turn.startswith(below)
    )


def too_many_denials(denials: Iterable[Denial]) -> str:
    """Word the end of a run or item in which people denied one tool in too many turns; empty if they did not.

    Parallel calls count once: the model learns of a denial only when its turn has ended.
    """
    turns: dict[str, dict[str, str]] = {}
    for denial in denials:
        turns.setdefault(denial.tool, {})[denial.turn] = denial.reason
    for tool, reasons in turns.items():
        if len(reasons) >= MAX_DENIALS:
            last = list(reasons.values())[-1]
            return plain(f"{tool} was denied in {len(reasons)} turns, last because: {last}")
    return ""
