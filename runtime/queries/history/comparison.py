"""Compares two runs: their common entries, and the steps in which they differ."""

from dataclasses import dataclass
from typing import Any

from runtime.core.documents import codec
from runtime.core.machine.replay import Entry
from runtime.queries.history.alignment import Alignment, align
from runtime.queries.history.entry_texts import Paths, paths_of, texts_of
from runtime.queries.journal import JournalLine, read
from runtime.queries.runs import RunDetail
from runtime.queries.spans.fold import fold
from runtime.queries.transcript.transcript import Transcript, transcript_of

# Fields that differ between runs with the same history.
_OWN = frozenset({"gate", "at", "until", "expires_at"})

MAX_SHOWN = 200  # entries of each run


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """An entry that the other run lacks: its events in words, each with its agents and tool."""

    position: int
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs. `common` is its last common entry, 0 for none; `own` are the entries after it."""

    run: RunDetail
    common: int
    own: tuple[Own, ...]
    left_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """`related` says that one run is a fork of the other, or both of a third."""

    left: Side
    right: Side
    related: bool
    steps: Alignment


def compare(left: RunDetail, right: RunDetail) -> Comparison:
    """Compare two runs. The caller has checked that both may be read."""
    lines = read(left.id), read(right.id)
    both = transcript_of(fold(lines[0])), transcript_of(fold(lines[1]))
    begun = _forked((left, right), both)
    at = begun or (0, 0)
    while _same(lines[0][at[0] : at[0] + 1], lines[1][at[1] : at[1] + 1]):
        at = at[0] + 1, at[1] + 1
    paths = [paths_of(transcript) for transcript in both]
    return Comparison(
        left=_side(left, lines[0], at[0], paths[0]),
        right=_side(right, lines[1], at[1], paths[1]),
        related=begun is not None,
        steps=align(*both),
    )


def _forked(
    runs: tuple[RunDetail, RunDetail], both: tuple[Transcript, Transcript]
) -> tuple[int, int] | None:
    """Return the last entry of each run that a fork has copied from the other; None if they are not related."""
    origins = [transcript.origin for transcript in both]
    for here, other in ((0, 1), (1, 0)):
        origin = origins[here]
        if origin is not None and origin.of == runs[other].id:
            return (1, origin.position) if here == 0 else (origin.position, 1)
    one, two = origins
    if one and two and one.of and (one.of, one.position) == (two.of, two.position):
        return 1, 1
    return None


def _same(left: tuple[JournalLine, ...], right: tuple[JournalLine, ...]) -> bool:
    if not left or not right or left[0].entry is None or right[0].entry is None:
        return False
    return _comparable(left[0].entry) == _comparable(right[0].entry)


def _comparable(entry: Entry) -> list[Any]:
    return [
        {name: value for name, value in event.items() if name not in _OWN}
        for event in codec.documents_of(entry.events)
    ]


def _side(run: RunDetail, lines: tuple[JournalLine, ...], common: int, paths: Paths) -> Side:
    rest = lines[common:]
    own = (Own(position=line.position, events=texts_of(line, paths)) for line in rest[:MAX_SHOWN])
    return Side(run=run, common=common, own=tuple(own), left_out=max(len(rest) - MAX_SHOWN, 0))
