"""The map of a run: a tree of its rows, filtered, searched, and summed up."""

from datetime import UTC, datetime, timedelta

from runtime.reads.timeline import RowFilter, StepMap, map_of
from runtime.reads.trace.span import Span, SpanKind, SpanState, Usage

AT = datetime(2026, 11, 29, tzinfo=UTC)
ENDED = AT + timedelta(seconds=1)


def _span(
    kind: SpanKind,
    depth: int,
    name: str,
    state: SpanState = SpanState.DONE,
    *,
    is_open: bool = False,
    usage: Usage | None = None,
    fact: str = "",
) -> Span:
    end = None if is_open else ENDED
    step = f"{depth}/{name}"
    span = Span(kind=kind, step=step, name=name, depth=depth, start=AT, state=state)
    span.end, span.usage, span.fact = end, usage, fact
    return span


def _map() -> StepMap:
    used = Usage(input=10, output=2, cost=5)
    return map_of(
        [
            _span(SpanKind.QUEUE, 0, ""),
            _span(SpanKind.AGENT, 0, "root", SpanState.AT_WORK, is_open=True),
            _span(SpanKind.MODEL, 1, "root", usage=used),
            _span(SpanKind.AGENT, 1, "first", SpanState.FAILED),
            _span(SpanKind.AGENT, 2, "first", SpanState.NEW_VERSION),
            _span(SpanKind.MODEL, 2, "first", usage=used),
            _span(SpanKind.TOOL, 2, "read", SpanState.FAILED, fact="page 7"),
            _span(SpanKind.AGENT, 1, "second"),
            _span(SpanKind.PERSON, 2, "pay", SpanState.GATE_OPEN, is_open=True),
            _span(SpanKind.PERSON, 2, "pay", SpanState.DISAGREED),
            _span(SpanKind.TOOL, 1, "mail"),
        ]
    )


def _drawn(steps: StepMap, indexes: list[int]) -> str:
    """The rows as nested brackets; one that only leads to others is in lower case."""
    rows = steps.rows(indexes)
    return "".join(
        ("l" if row.leads else "X") + ("(" if row.is_parent else "") + ")" * len(row.closes)
        for row in rows
    )


def test_rows_are_nested_below_their_agents() -> None:
    steps = _map()
    assert _drawn(steps, list(range(11))) == "XX(XX(XXX)X(XX)X)"
    assert _drawn(steps, [6, 8]) == "l(l(X)l(X))"
    assert _drawn(steps, [0]) == "X"
    assert _drawn(steps, []) == ""


def test_rows_are_chosen_by_filter_and_text() -> None:
    steps = _map()
    assert list(steps.matches(RowFilter.FAILED, "")) == [3, 6]
    assert list(steps.matches(RowFilter.WAITING, "")) == [8]
    assert list(steps.matches(RowFilter.PEOPLE, "")) == [8, 9]
    assert list(steps.matches(None, "PAGE 7")) == [6]
    assert list(steps.matches(RowFilter.FAILED, "mail")) == []
    assert [steps.count(choice) for choice in RowFilter] == [2, 1, 2]


def test_an_agent_has_the_usage_of_all_replies_below_it() -> None:
    steps = _map()
    total = Usage(input=20, output=4, cost=10)
    assert [steps.usages[index] for index in (1, 3, 7)] == [total, steps.usages[5], None]
    unpriced = _span(SpanKind.MODEL, 1, "root", usage=Usage(input=1, output=1, cost=None))
    usage = map_of([*steps.spans, unpriced]).usages[1]
    assert usage == Usage(input=21, output=5, cost=None)
