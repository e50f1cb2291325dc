"""Aligns the steps of two runs: their agents, model calls and tool calls, and the parts in which each pair differs."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Any

from runtime.core.documents.budget_text import to_text
from runtime.core.run.budgets import Limit
from runtime.ports import wiring
from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.frames import FrameRecord
from runtime.queries.spans.span import Span, Usage
from runtime.queries.transcript.transcript import Transcript
from runtime.queries.version_diff import VersionDifference, differences

MAX_STEPS = 1_000  # of each run that are compared


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
    def place(self) -> tuple[Any, ...]:
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
    same: int = 0
    left: ComparedTotals = field(default_factory=ComparedTotals)
    right: ComparedTotals = field(default_factory=ComparedTotals)
    left_out: int = 0


def align(left: Transcript, right: Transcript) -> Alignment:
    """Align two runs. Steps beyond the first MAX_STEPS of a run are counted in `left_out`, and in the totals.

    Replies that a fork has only from its original are compared in neither run; its totals begin at the fork.
    """
    totals = ComparedTotals(), ComparedTotals()
    missing = _missing(left)
    for frame, turns in _missing(right).items():
        missing[frame] = max(turns, missing.get(frame, 0))
    ours, theirs = (
        list(_steps(one, counts, missing))
        for one, counts in zip((left, right), totals, strict=True)
    )
    left_out = max(len(ours) - MAX_STEPS, 0) + max(len(theirs) - MAX_STEPS, 0)
    found, same = [], 0
    for one, two in _paired(ours[:MAX_STEPS], theirs[:MAX_STEPS]):
        if one and two and (one.parts, one.version) == (two.parts, two.version):
            same += 1
        else:
            found.append(_pair(one, two))
    return Alignment(
        pairs=tuple(found), same=same, left=totals[0], right=totals[1], left_out=left_out
    )


def _paired(
    ours: list[ComparedStep], theirs: list[ComparedStep]
) -> Iterator[tuple[ComparedStep | None, ComparedStep | None]]:
    places = [step.place for step in ours], [step.place for step in theirs]
    matcher = SequenceMatcher(None, *places, autojunk=False)
    for _, i, i_end, j, j_end in matcher.get_opcodes():
        if i_end - i == j_end - j and places[0][i:i_end] == places[1][j:j_end]:
            yield from zip(ours[i:i_end], theirs[j:j_end], strict=True)
        else:
            yield from ((step, None) for step in ours[i:i_end])
            yield from ((None, step) for step in theirs[j:j_end])


def _pair(left: ComparedStep | None, right: ComparedStep | None) -> StepPair:
    ours, theirs = (step.parts if step else {} for step in (left, right))
    parts = tuple(
        ComparedPart(name=name, left=ours.get(name), right=theirs.get(name))
        for name in {**ours, **theirs}
        if left is None or right is None or ours.get(name) != theirs.get(name)
    )
    changes: tuple[VersionDifference, ...] = ()
    if left and right and left.version != right.version:
        between = wiring.catalogue().changes_between(left.name, left.version, right.version)
        changes = differences(between or ())
    return StepPair(left=left, right=right, parts=parts, changes=changes)


def _missing(transcript: Transcript) -> dict[str, int]:
    """Return how many of the first replies of a frame only the run has that it was forked from."""
    return {frame.id: frame.turn - len(_replies(frame)) for frame in transcript.frames()}


def _replies(frame: FrameRecord) -> list[Span]:
    return [item for item in frame.items if isinstance(item, Span) and item.usage is not None]


def _steps(
    transcript: Transcript, totals: ComparedTotals, missing: Mapping[str, int]
) -> Iterator[ComparedStep]:
    for root in transcript.roots:
        yield from _of_frame(root, (root.agent,), totals, missing)


def _of_frame(
    frame: FrameRecord, path: tuple[str, ...], totals: ComparedTotals, missing: Mapping[str, int]
) -> Iterator[ComparedStep]:
    given: dict[str, Any] = {
        message.kind: message.value
        for message in frame.messages
        if message.kind in ("input", "instructions") and message.turn == 0
    }
    yield ComparedStep(
        kind=StepKind.AGENT,
        path=path,
        name=frame.agent,
        parts=given | {"ended": frame.outcome} if frame.outcome else given,
        version=frame.fingerprint,
    )
    said = {message.turn: message.value for message in frame.messages if message.kind == "text"}
    turn = frame.turn - len(_replies(frame))
    copied = [
        call for call in frame.calls if call not in frame.items
    ]  # of the run it was forked from
    for item in (*copied, *frame.items):
        if isinstance(item, CallRecord):
            totals.calls += 1
            yield _call(item, path)
            child = frame.children.get(item.id)
            if child is not None:
                yield from _of_frame(child, (*path, child.agent), totals, missing)
        elif item.usage is not None:
            turn += 1
            totals.add(item.usage)
            if turn > missing[frame.id]:
                yield _reply(item, path, frame.agent, said.get(turn))


def _call(call: CallRecord, path: tuple[str, ...]) -> ComparedStep:
    parts = {"arguments": call.args, "state": call.state.value, "result": call.result}
    parts |= {"reason": call.note or None}
    return _step(StepKind.CALL, path, call.tool, parts)


def _reply(span: Span, path: tuple[str, ...], agent: str, said: Any) -> ComparedStep:
    usage = span.usage
    assert usage is not None  # the caller has looked
    parts = {
        "model": span.model,
        "answer": said,
        "calls": ", ".join(span.tools),
        "input tokens": usage.input,
        "output tokens": usage.output,
        "cost in US dollars": None if usage.cost is None else to_text(Limit.MICROS, usage.cost),
    }
    return _step(StepKind.MODEL, path, agent, parts)


def _step(kind: StepKind, path: tuple[str, ...], name: str, parts: dict[str, Any]) -> ComparedStep:
    known = {part: value for part, value in parts.items() if value not in (None, "")}
    return ComparedStep(kind=kind, path=path, name=name, parts=known)
