"""Compares two runs: their common entries, and the steps in which they differ."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from runtime.core.documents import codec
from runtime.core.values.budgets import Limit, to_text
from runtime.ports import wiring
from runtime.reads.entries import Paths, collect_paths, describe_entry
from runtime.reads.journal import JournalLine, Remaining, read_remaining
from runtime.reads.run_rows import RunDetail
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.fold import fold
from runtime.reads.trace.frames import FrameRecord
from runtime.reads.trace.span import Span, Usage
from runtime.reads.transcript import Transcript, build_transcript
from runtime.reads.version_diff import VersionDifference, list_differences

MAX_STEPS = 1_000  # of each run that are compared

# Fields that differ between runs with the same history.
_VARYING_FIELDS = frozenset({"gate", "at", "until", "expires_at"})
MAX_SHOWN = 200  # entries of each run


class StepKind(StrEnum):
    """The kinds of steps that are compared."""

    AGENT = "agent"
    MODEL = "model call"
    CALL = "call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedStep:
    """One step of a run. `path` goes from the run's agent to that of the step; `parts` are JSON or text by name.

    `name` is the agent, or the tool of a call. `version` is the fingerprint of an agent.
    """

    kind: StepKind
    path: tuple[str, ...]
    name: str
    parts: dict[str, Any]
    version: str = ""

    @property
    def pairing_key(self) -> tuple[Any, ...]:
        """The steps of two runs with the same place can be a pair."""
        return self.kind, self.path, self.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedPart:
    """One part in which a pair differs; None if that step lacks it."""

    name: str
    left: Any
    right: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPair:
    """Two steps that correspond and differ, or one that the other run lacks.

    `changes` are those between the two versions of an agent.
    """

    left: ComparedStep | None
    right: ComparedStep | None
    parts: tuple[ComparedPart, ...]
    changes: tuple[VersionDifference, ...] = ()

    @property
    def step(self) -> ComparedStep:
        """The step of the first run, or the one that only the second has."""
        step = self.left or self.right
        assert step is not None  # a pair has at least one step
        return step


@dataclass(slots=True, kw_only=True)
class ComparedTotals:
    """The sums of a run: replies of models, their tokens, their cost in US dollars, and tool calls.

    `unpriced` counts the replies without a known price.
    """

    replies: int = 0
    input: int = 0
    output: int = 0
    micros: int = 0
    unpriced: int = 0
    calls: int = 0

    @property
    def cost(self) -> str:
        """The cost as decimal text."""
        return to_text(Limit.MICROS, self.micros)

    def add(self, usage: Usage) -> None:
        """Add the usage of one reply."""
        self.replies += 1
        self.input += usage.input
        self.output += usage.output
        self.micros += usage.cost or 0
        self.unpriced += usage.cost is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Alignment:
    """The pairs that differ, in the order of the first run, and the number of equal ones."""

    pairs: tuple[StepPair, ...] = ()
    equal: int = 0
    left: ComparedTotals = field(default_factory=ComparedTotals)
    right: ComparedTotals = field(default_factory=ComparedTotals)
    left_out: int = 0


def align(left: Transcript, right: Transcript) -> Alignment:
    """Align two runs. Steps beyond the first MAX_STEPS of a run are counted in `left_out`, and in the totals.

    Replies that a fork has only from its original are compared in neither run; its totals begin at the fork.
    """
    totals = ComparedTotals(), ComparedTotals()
    missing = _count_missing(left)
    for frame, turns in _count_missing(right).items():
        missing[frame] = max(turns, missing.get(frame, 0))
    ours, theirs = (
        [
            step
            for root in transcript.roots
            for step in _list_steps_of_frame(root, (root.agent,), counts, missing)
        ]
        for transcript, counts in zip((left, right), totals, strict=True)
    )
    left_out = max(len(ours) - MAX_STEPS, 0) + max(len(theirs) - MAX_STEPS, 0)
    pairs, equal = [], 0
    for mine, other in _pair_steps(ours[:MAX_STEPS], theirs[:MAX_STEPS]):
        if mine and other and (mine.parts, mine.version) == (other.parts, other.version):
            equal += 1
        else:
            pairs.append(_build_pair(mine, other))
    return Alignment(
        pairs=tuple(pairs), equal=equal, left=totals[0], right=totals[1], left_out=left_out
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsharedEntry:
    """An entry that the other run lacks: its events in words, each with its agents and tool."""

    position: int
    events: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs. `common` is its last common entry, 0 for none; `unshared` are the entries after it."""

    run: RunDetail
    common: int
    unshared: tuple[UnsharedEntry, ...]
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
    journals = read_remaining(left.id), read_remaining(right.id)
    both = build_transcript(fold(journals[0])), build_transcript(fold(journals[1]))
    begun = _find_last_shared((left, right), both)
    at = begun or (0, 0)
    while (events := _strip_varying_fields(journals[0].find_line(at[0] + 1))) is not None:
        if events != _strip_varying_fields(journals[1].find_line(at[1] + 1)):
            break
        at = at[0] + 1, at[1] + 1
    paths = [collect_paths(transcript) for transcript in both]
    return RunComparison(
        left=_build_side(left, journals[0], at[0], paths[0]),
        right=_build_side(right, journals[1], at[1], paths[1]),
        related=begun is not None,
        steps=align(*both),
    )


def _pair_steps(
    ours: list[ComparedStep], theirs: list[ComparedStep]
) -> Iterator[tuple[ComparedStep | None, ComparedStep | None]]:
    keys = [step.pairing_key for step in ours], [step.pairing_key for step in theirs]
    matcher = SequenceMatcher(None, *keys, autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        if i_end - i == j_end - j and keys[0][i:i_end] == keys[1][j:j_end]:
            yield from zip(ours[i:i_end], theirs[j:j_end], strict=True)
        else:
            yield from ((step, None) for step in ours[i:i_end])
            yield from ((None, step) for step in theirs[j:j_end])


def _build_pair(left: ComparedStep | None, right: ComparedStep | None) -> StepPair:
    ours, theirs = (step.parts if step else {} for step in (left, right))
    parts = tuple(
        ComparedPart(name=name, left=ours.get(name), right=theirs.get(name))
        for name in {**ours, **theirs}
        if left is None or right is None or ours.get(name) != theirs.get(name)
    )
    changes: tuple[VersionDifference, ...] = ()
    if left and right and left.version != right.version:
        between = wiring.resolve_catalogue().list_changes(left.name, left.version, right.version)
        changes = list_differences(between or ())
    return StepPair(left=left, right=right, parts=parts, changes=changes)


def _count_missing(transcript: Transcript) -> dict[str, int]:
    """Return how many of the first replies of a frame only the run has that it was forked from."""
    return {frame.id: frame.turn - len(_list_replies(frame)) for frame in transcript.frames()}


def _list_replies(frame: FrameRecord) -> list[Span]:
    return [item for item in frame.items if isinstance(item, Span) and item.usage is not None]


def _list_steps_of_frame(
    frame: FrameRecord, path: tuple[str, ...], totals: ComparedTotals, missing: Mapping[str, int]
) -> Iterator[ComparedStep]:
    first: dict[str, Any] = {
        message.kind: message.value
        for message in frame.messages
        if message.kind in ("input", "instructions") and message.turn == 0
    }
    yield ComparedStep(
        kind=StepKind.AGENT,
        path=path,
        name=frame.agent,
        parts=first | {"ended": frame.outcome} if frame.outcome else first,
        version=frame.fingerprint,
    )
    texts = {message.turn: message.value for message in frame.messages if message.kind == "text"}
    turn = frame.turn - len(_list_replies(frame))
    copied = [call for call in frame.calls if call not in frame.items]  # of a fork's original
    for item in (*copied, *frame.items):
        if isinstance(item, CallRecord):
            totals.calls += 1
            parts = {"arguments": item.args, "state": item.state.value, "result": item.result}
            parts["reason"] = item.note or None
            yield _build_step(StepKind.CALL, path, item.tool, parts)
            child = frame.children.get(item.id)
            if child is not None:
                yield from _list_steps_of_frame(child, (*path, child.agent), totals, missing)
        elif item.usage is not None:
            turn += 1
            totals.add(item.usage)
            if turn > missing[frame.id]:
                cost = item.usage.cost
                parts = {
                    "model": item.model,
                    "answer": texts.get(turn),
                    "calls": ", ".join(item.tools),
                    "input tokens": item.usage.input,
                    "output tokens": item.usage.output,
                    "cost in US dollars": None if cost is None else to_text(Limit.MICROS, cost),
                }
                yield _build_step(StepKind.MODEL, path, frame.agent, parts)


def _build_step(
    kind: StepKind, path: tuple[str, ...], name: str, parts: dict[str, Any]
) -> ComparedStep:
    filled = {part: value for part, value in parts.items() if value not in (None, "")}
    return ComparedStep(kind=kind, path=path, name=name, parts=filled)


def _find_last_shared(
    runs: tuple[RunDetail, RunDetail], both: tuple[Transcript, Transcript]
) -> tuple[int, int] | None:
    """Return the last entry of each run that a fork has copied from the other; None if they are not related."""
    origins = [transcript.origin for transcript in both]
    for here, other in ((0, 1), (1, 0)):
        origin = origins[here]
        if origin is not None and origin.of == runs[other].id:
            return (1, origin.position) if here == 0 else (origin.position, 1)
    left, right = origins
    if left and right and left.of and (left.of, left.position) == (right.of, right.position):
        return 1, 1
    return None


def _strip_varying_fields(line: JournalLine | None) -> list[Any] | None:
    if line is None or line.entry is None:
        return None
    return [
        {name: value for name, value in event.items() if name not in _VARYING_FIELDS}
        for event in codec.build_event_documents(line.entry.events)
    ]


def _build_side(run: RunDetail, journal: Remaining, common: int, paths: Paths) -> Side:
    later = [line for line in journal.lines if line.position > common]
    unshared = (
        UnsharedEntry(position=line.position, events=describe_entry(line, paths))
        for line in later[:MAX_SHOWN]
    )
    return Side(
        run=run, common=common, unshared=tuple(unshared), left_out=max(len(later) - MAX_SHOWN, 0)
    )
