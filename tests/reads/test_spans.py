"""One pass over a journal gives frames, calls and spans whose states agree."""

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from runtime.core.run.continuation import FrameState, Phase
from runtime.core.run.events import Event, Forked, GateDecided
from runtime.core.run.forks import read_fork
from runtime.core.run.gates import is_blocked_by_gate
from runtime.core.run.reducer import Entry
from runtime.core.values.enums import SETTLED, Verdict
from runtime.core.values.verdicts import VERDICTS
from runtime.ports.agents import AgentParts, Asking
from runtime.reads import entries, run_page
from runtime.reads.agent_picture import MAX_AGENTS, MAX_PARTS, Part, draw
from runtime.reads.journal import JournalLine, Remaining, fold_last_state
from runtime.reads.run_page import MAX_SECONDS, Shelf, compute_budget_usage
from runtime.reads.timeline import RowFilter, StepMap, build_map
from runtime.reads.trace.fold import Trace, fold
from runtime.reads.trace.span import Span, SpanKind, SpanResult, SpanState, Usage
from tests.core.run.events import AT, begun, opened
from tests.core.run.test_compaction import turn
from tests.core.run.walks import Walk


def _folded(seed: int) -> Trace:
    return _folded_walk(Walk(seed))


def _folded_walk(walk: Walk) -> Trace:
    return fold(Remaining(run=RUN, lines=lines_of(walk.history)), start=AT)


def test_an_ended_run_has_no_open_span() -> None:
    for trace in map(_folded, range(60)):
        if all(frame.outcome for frame in trace.roots):
            for span in trace.list_spans():
                assert span.start is None or span.end is not None, span.state
                assert span.end is None or span.state.result is not SpanResult.OPEN, span.state


def test_calls_recorded_in_the_original_are_told_apart() -> None:
    forks = [_folded(seed).frames.values() for seed in range(3, 100, 10)]
    calls = [call for frames in forks for frame in frames for call in frame.calls]
    recorded = [call for call in calls if call.state in SETTLED and not call.spans]
    states = {span.state for call in recorded if not call.child for span in call.list_shown_spans()}
    assert states == {SpanState.RECORDED}
    for frame in (frame for frames in forks for frame in frames):
        models = [n for n, one in enumerate(frame.items) if getattr(one, "kind", "") == "model"]
        after = frame.items[models[0] :] if models else []
        copied = [one for one in recorded if not one.child and one in after]
        assert not copied, "the model is asked after them"


def test_a_fork_says_whose_results_it_copied() -> None:
    shown = set()
    for seed in range(3, 300, 10):
        _, copy = (walk := Walk(seed)).history[:2]
        assert isinstance(copy, Forked)
        walk.history = walk.history[:2]
        records = _folded_walk(walk).frames
        for frame in read_fork(copy).frames.values():
            for call in frame.calls:
                record = records[frame.id].by_id[call.id]
                assert record.decided_by == (call.reported_by or "")
                shown.add((call.answered, record.verdict))
    copied = {verdict for verdict, rule in VERDICTS.items() if rule.in_result}
    told = {(False, one) for one in (None, Verdict.HAPPENED, *copied)}
    assert (True, Verdict.ANSWER) in shown <= {(True, Verdict.ANSWER), *told}


def test_each_call_has_the_state_of_the_reducer_also_after_its_turn() -> None:
    for seed in range(60):
        trace, walk = _folded(seed), Walk(seed)
        assert trace.now.frames == walk.now.frames
        for frame in walk.now.frames.values():
            record = trace.frames[frame.id]
            assert record.frame == frame
            assert [record.by_id[call.id].call for call in frame.calls] == list(frame.calls)


@pytest.mark.slow
def test_a_model_call_is_open_exactly_while_it_comes_next() -> None:
    waits = 0
    for walk in map(Walk, range(300)):
        if any(
            isinstance(event, GateDecided) and event.verdict is Verdict.STOP
            for event in walk.history
        ):
            continue  # the engine ends the run in the same entry
        lines = lines_of(walk.history)
        trace = Trace(Remaining(run=RUN, lines=lines), gates={}, start=AT, provider_errors=False)
        calling: set[str] = set()
        for line in lines:
            trace.read(line)
            frames = trace.now.frames.values() if trace.now.phase is Phase.STARTED else ()
            before, calling = calling, {f.id for f in frames if trace.frames[f.id].is_calling_model}
            asking = {frame.id for frame in frames if frame.state is FrameState.ASKING}
            blocked = {name for name in asking if is_blocked_by_gate(trace.now, name)}
            assert asking - blocked <= calling <= asking - (blocked - before)
            waits += len(blocked - calling)
    assert waits, "no turn ended behind a gate"


@pytest.mark.parametrize("damage", ["unreadable", "refused", "missing"])
def test_a_trace_ends_before_the_first_entry_that_no_state_follows_from(damage: str) -> None:
    walk = Walk(1)
    lines = list(lines_of(walk.history))
    if damage == "unreadable":
        lines[4] = replace(lines[4], entry=None)
    elif damage == "refused":
        lines[4] = replace(lines[4], entry=lines[0].entry)
    else:
        del lines[3]
    lines[9] = replace(lines[9], entry=None)
    trace = fold(Remaining(run=RUN, lines=tuple(lines)), start=AT)
    assert trace.unreadable == [5, lines[9].position]
    whole = fold(
        Remaining(run=RUN, lines=tuple(lines[: 3 if damage == "missing" else 4])), start=AT
    )
    assert trace.list_spans() == whole.list_spans()


# The map


START = datetime(2026, 11, 29, tzinfo=UTC)
ENDED = START + timedelta(seconds=1)


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
    span = Span(kind=kind, step=step, name=name, depth=depth, start=START, state=state)
    span.end, span.usage, span.fact = end, usage, fact
    return span


def _map() -> StepMap:
    used = Usage(input=10, output=2, cost=5)
    return build_map(
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
    assert list(steps.select_rows(RowFilter.FAILED, "")) == [3, 6]
    assert list(steps.select_rows(RowFilter.WAITING, "")) == [8]
    assert list(steps.select_rows(RowFilter.PEOPLE, "")) == [8, 9]
    assert list(steps.select_rows(None, "PAGE 7")) == [6]
    assert list(steps.select_rows(RowFilter.FAILED, "mail")) == []
    assert [steps.count(choice) for choice in RowFilter] == [2, 1, 2]


def test_an_agent_has_the_usage_of_all_replies_below_it() -> None:
    steps = _map()
    total = Usage(input=20, output=4, cost=10)
    assert [steps.usages[index] for index in (1, 3, 7)] == [total, steps.usages[5], None]
    unpriced = _span(SpanKind.MODEL, 1, "root", usage=Usage(input=1, output=1, cost=None))
    usage = build_map([*steps.spans, unpriced]).usages[1]
    assert usage == Usage(input=21, output=5, cost=None)


# States


RUN = UUID(int=1)
LONG = [begun(), opened(), *[event for number in range(1, 401) for event in turn(number)]]
MAX_BYTES = 6_000_000  # all states take 7,600,000, and with the documents of two 11,700,000


def lines_of(events: Iterable[Event]) -> tuple[JournalLine, ...]:
    """A journal with one event in each entry, a second apart."""
    entries = [
        Entry(at=AT + timedelta(seconds=at), events=(event,)) for at, event in enumerate(events, 1)
    ]
    return tuple(JournalLine(position=at, entry=one, mac="") for at, one in enumerate(entries, 1))


LINES = lines_of(LONG)
WHOLE = Remaining(run=RUN, lines=LINES)


@pytest.mark.django_db  # the titles of agents
@pytest.mark.parametrize(
    "shown",
    [
        lambda: compute_budget_usage(fold_last_state(WHOLE.start, WHOLE.lines)),
        lambda: entries.read_state_after(RUN, len(LINES)),
    ],
)
def test_not_all_states_of_a_long_run_are_in_memory_at_once(
    shown: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entries, "read_remaining", lambda *_, **__: WHOLE)
    tracemalloc.start()
    try:
        assert shown()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MAX_BYTES


# Values between pages


def test_a_value_is_lent_to_one_page_at_a_time() -> None:
    values = Shelf[str](10)
    values.put("a", "first", 1)
    assert (values.take("a"), values.take("a")) == ("first", None)


def test_values_that_no_page_took_for_long_make_room() -> None:
    values = Shelf[str](10)
    for key in "abc":
        values.put(key, key, 4)
    values.put("a", "a", 4)
    assert [values.take(key) for key in "abc"] == ["a", None, "c"]
    values.put("d", "too large", 11)
    assert values.take("d") is None


def test_values_are_not_kept_for_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    values, clock = Shelf[str](10), 0.0
    monkeypatch.setattr(run_page, "monotonic", lambda: clock)
    values.put("a", "a", 4)
    values.put("b", "b", 4)
    clock = MAX_SECONDS
    assert values.take("a") is None
    values.put("c", "c", 1)
    assert not values.take("b")


# The picture of an agent


def _parts(*agents: str, tools: dict[str, Asking] | None = None) -> AgentParts:
    return AgentParts(tools=tools or {}, agents=dict.fromkeys(agents, Asking.NEVER))


def _picture(part: Part) -> str:
    below = " ".join(_picture(agent) for agent in part.agents)
    return f"{part.name}({below})" if below else part.name


def test_agents_that_call_each_other_are_drawn_once_and_nearest_to_the_top() -> None:
    family = {"a": _parts("b", "c"), "b": _parts("a", "d"), "c": _parts("c", "b"), "d": _parts("c")}
    assert _picture(draw("a", family).root) == "a(b(a d(c)) c(c b))"
    assert _picture(draw("stranger", family).root) == "stranger"


def test_large_agents_are_cut_and_say_by_how_much() -> None:
    tools = {f"t{number}": Asking.ALWAYS for number in range(MAX_PARTS + 5)}
    wide = {"a": _parts(*(f"b{number}" for number in range(MAX_PARTS + 2)), tools=tools)}
    root = draw("a", wide).root
    assert (len(root.tools), root.more_tools) == (MAX_PARTS, 5)
    assert (len(root.agents), root.more_agents) == (MAX_PARTS, 2)
    deep = {f"n{number}": _parts(f"n{number + 1}") for number in range(100)}
    picture = draw("n0", deep)
    assert (picture.agents, _picture(picture.root).count("(")) == (MAX_AGENTS, MAX_AGENTS)


def test_tools_that_ask_a_person_are_counted() -> None:
    tools = dict(zip("wxyz", Asking, strict=True))
    picture = draw("a", {"a": _parts("b", tools=tools), "b": _parts(tools={"w": Asking.NEVER})})
    assert (picture.agents, picture.tools, picture.asking) == (2, 5, 3)
