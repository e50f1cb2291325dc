"""Compares two runs: their common entries, and the steps in which they differ."""

from dataclasses import dataclass
from typing import Any

from runtime.core.documents import codec
from runtime.core.run.reducer import Entry
from runtime.queries.history.alignment import Alignment, align
from runtime.queries.history.entry_texts import Paths, paths_of, texts_of
from runtime.queries.journal import JournalLine, Remaining, remaining
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
class RunComparison:
    """`related` says that one run is a fork of the other, or both of a third."""

    left: Side
    right: Side
    related: bool
    steps: Alignment


def compare(left: RunDetail, right: RunDetail) -> RunComparison:
    """Compare two runs. The caller has checked that both may be read."""
    journals = remaining(left.id), remaining(right.id)
    both = transcript_of(fold(journals[0])), transcript_of(fold(journals[1]))
    begun = _forked((left, right), both)
    at = begun or (0, 0)
    while _same(journals[0].line(at[0] + 1), journals[1].line(at[1] + 1)):
        at = at[0] + 1, at[1] + 1
    paths = [paths_of(transcript) for transcript in both]
    return RunComparison(
        left=_side(left, journals[0], at[0], paths[0]),
        right=_side(right, journals[1], at[1], paths[1]),
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


def _same(left: JournalLine | None, right: JournalLine | None) -> bool:
    if left is None or right is None or left.entry is None or right.entry is None:
        return False
    return _comparable(left.entry) == _comparable(right.entry)


def _comparable(entry: Entry) -> list[Any]:
    return [
        {name: value for name, value in event.items() if name not in _OWN}
        for event in codec.documents_of(entry.events)
    ]


def _side(run: RunDetail, journal: Remaining, common: int, paths: Paths) -> Side:
    rest = [line for line in journal.lines if line.position > common]
    own = (Own(position=line.position, events=texts_of(line, paths)) for line in rest[:MAX_SHOWN])
    return Side(run=run, common=common, own=tuple(own), left_out=max(len(rest) - MAX_SHOWN, 0))
