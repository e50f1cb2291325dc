"""One pass over a journal gives frames, calls and spans whose states agree."""

from dataclasses import replace

import pytest

from runtime.core.run.continuation import FrameState, Phase
from runtime.core.run.events import Forked, GateDecided
from runtime.core.run.forks import read_fork
from runtime.core.run.gates import is_blocked_by_gate
from runtime.core.values.enums import SETTLED, Verdict
from runtime.core.values.verdicts import VERDICTS
from runtime.reads.journal import Remaining
from runtime.reads.trace.fold import Trace, fold
from runtime.reads.trace.span import SpanResult, SpanState
from tests.core.run.events import AT
from tests.core.run.walks import Walk
from tests.reads.test_states import RUN, lines_of


def _folded(seed: int) -> Trace:
    return _folded_walk(Walk(seed))


def _folded_walk(walk: Walk) -> Trace:
    return fold(Remaining(run=RUN, lines=lines_of(walk.history)), start=AT)


def test_an_ended_run_has_no_open_span() -> None:
    for trace in map(_folded, range(60)):
        if all(frame.outcome for frame in trace.roots):
            for span in trace.spans():
                assert span.start is None or span.end is not None, span.state
                assert span.end is None or span.state.result is not SpanResult.OPEN, span.state


def test_calls_recorded_in_the_original_are_told_apart() -> None:
    forks = [_folded(seed).frames.values() for seed in range(3, 100, 10)]
    calls = [call for frames in forks for frame in frames for call in frame.calls]
    recorded = [call for call in calls if call.state in SETTLED and not call.spans]
    states = {span.state for call in recorded if not call.child for span in call.spans_to_show()}
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
    assert trace.spans() == whole.spans()
