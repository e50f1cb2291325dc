"""The map of a run: the rows of its timeline as a tree, filtered, searched, and cut into pages."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from runtime.reads.trace.span import Span, SpanKind, SpanResult, SpanState, Usage

ROWS = 100  # on one page, without the agents above them

_WAITS = frozenset(SpanKind) - {SpanKind.AGENT, SpanKind.MODEL, SpanKind.TOOL}
_OF_PEOPLE = frozenset({SpanKind.PERSON, SpanKind.PAUSE, SpanKind.MESSAGE})


class RowFilter(StrEnum):
    """A choice of rows."""

    FAILED = "failed"
    WAITING = "waiting"
    PEOPLE = "people"

    def chooses(self, span: Span) -> bool:
        """Tell whether the span is one of these."""
        match self:
            case RowFilter.FAILED:
                return span.result is SpanResult.BAD and not span.for_people
            case RowFilter.WAITING:
                return span.kind in _WAITS and span.start is not None and span.end is None
            case RowFilter.PEOPLE:
                return span.kind in _OF_PEOPLE


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """One row of the tree.

    `is_parent` says that the next rows are below it, and `closes` counts the levels that end with it. A row that
    `leads` is only there because rows below it are. `usage` is that of its reply, or of all replies of an agent.
    """

    span: Span
    is_parent: bool
    leads: bool
    closes: range
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMap:
    """The rows of a timeline. `parents` has the index of the agent above each, -1 at the top."""

    spans: Sequence[Span]
    parents: Sequence[int]
    usages: Sequence[Usage | None]

    def count(self, choice: RowFilter) -> int:
        """Count the rows that a filter chooses."""
        return sum(choice.chooses(span) for span in self.spans)

    def matches(self, choice: RowFilter | None, text: str) -> Sequence[int]:
        """Return the indexes of the rows that the filter chooses and that have the text."""
        text = text.casefold()
        return [
            index
            for index, span in enumerate(self.spans)
            if (choice is None or choice.chooses(span)) and text in span.words.casefold()
        ]

    def rows(self, indexes: Sequence[int]) -> tuple[MapRow, ...]:
        """Return these rows in order, each with the agents above it."""
        selected, with_agents = frozenset(indexes), set(indexes)
        for index in indexes:
            agent = self.parents[index]
            while agent >= 0 and agent not in with_agents:
                with_agents.add(agent)
                agent = self.parents[agent]
        levels = {-1: -1}
        for index in sorted(with_agents):
            levels[index] = levels[self.parents[index]] + 1
        rows = []
        for index, following in pairwise([*levels, 0][1:]):  # 0 after the last: it follows no row
            level, next_level = levels[index], levels[following] if following else 0
            rows.append(
                MapRow(
                    span=self.spans[index],
                    is_parent=next_level > level,
                    leads=index not in selected,
                    closes=range(level - next_level),
                    usage=self.usages[index],
                )
            )
        return tuple(rows)


def map_of(spans: Sequence[Span]) -> StepMap:
    """Return the map of the rows of a timeline, which are in tree order."""
    parents: list[int] = []
    usages: list[Usage | None] = [span.usage for span in spans]
    agents: list[int] = []
    for index, span in enumerate(spans):
        while agents and spans[agents[-1]].depth >= span.depth:
            agents.pop()
        parents.append(agents[-1] if agents else -1)
        if span.usage is not None:
            for agent in agents:
                usages[agent] = span.usage.plus(usages[agent])
        if span.kind is SpanKind.AGENT and span.state is not SpanState.NEW_VERSION:
            agents.append(index)
    return StepMap(spans=spans, parents=parents, usages=usages)
