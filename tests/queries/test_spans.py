"""One pass over a journal gives frames, calls and spans whose states agree."""

from dataclasses import replace

from runtime.core.call_states import SETTLED, CallState
from runtime.core.continuation import Call, Edited
from runtime.core.enums import Verdict
from runtime.core.events import Forked
from runtime.core.machine.forks import state_of
from runtime.queries.journal import Remaining
from runtime.queries.spans.fold import Fold, fold
from runtime.queries.spans.forked import copied
from runtime.queries.spans.states import SpanResult, SpanState
from tests.core.machine.events import AT, after, frame_of
from tests.core.machine.walks import Walk
from tests.queries.test_states import RUN, lines_of


def _folded(seed: int) -> Fold:
    return _folded_walk(Walk(seed))


def _folded_walk(walk: Walk) -> Fold:
    return fold(Remaining(run=RUN, lines=lines_of(walk.history)), start=AT)


def test_an_ended_run_has_no_open_span() -> None:
    for told in map(_folded, range(60)):
        if all(frame.outcome for frame in told.roots):
            for span in told.spans():
                assert span.start is None or span.end is not None, span.state
                assert span.end is None or span.state.result is not SpanResult.OPEN, span.state


def test_calls_recorded_in_the_original_are_told_apart() -> None:
    forks = [_folded(seed).frames.values() for seed in range(3, 100, 10)]
    calls = [call for frames in forks for frame in frames for call in frame.calls]
    recorded = [call for call in calls if call.state in SETTLED and not call.spans]
    states = {span.state for call in recorded if not call.child for span in call.shown()}
    assert states == {SpanState.RECORDED}
    for frame in (frame for frames in forks for frame in frames):
        models = [n for n, one in enumerate(frame.items) if getattr(one, "kind", "") == "model"]
        after = frame.items[models[0] :] if models else []
        copied = [one for one in recorded if not one.child and one in after]
        assert not copied, "the model is asked after them"


def test_pages_count_the_denials_that_the_engine_counts() -> None:
    walks = [Walk(seed) for seed in range(100)]
    assert [_folded_walk(walk).denials for walk in walks] == [walk.now.denials for walk in walks]
    counted = [one.counts for walk in walks for one in walk.now.denials.values()]
    assert {True, False} <= set(counted)


def test_a_fork_says_whose_results_it_copied() -> None:
    shown = set()
    for seed in range(3, 300, 10):
        _, copy = (walk := Walk(seed)).history[:2]
        assert isinstance(copy, Forked)
        walk.history = walk.history[:2]
        records = _folded_walk(walk).frames
        for frame in state_of(copy).frames.values():
            for call in frame.calls:
                record = records[frame.id].by_id[call.id]
                assert record.decided_by == (call.reported_by or "")
                shown.add((call.answered, record.verdict))
    told = {(False, one) for one in (None, Verdict.HAPPENED, Verdict.REQUEST_CHANGES)}
    assert (True, Verdict.ANSWER) in shown <= {(True, Verdict.ANSWER), *told}


def test_a_fork_that_is_tried_again_shows_the_arguments_that_a_person_gave_in_it() -> None:
    first = Edited(by="eve", proposed={"a": 1}, in_fork=True)
    later = Edited(by="bea", proposed={"a": 1}, given={"a": 2}, given_by="eve")
    for level, edited in ((2, first), (3, later)):
        call = Call(id="c1.0", tool="t", args={"a": level}, edited=edited, state=CallState.CLOSED)
        state = replace(after(), frames={"0": frame_of(turn=1, calls=(call,))})
        [(record, _)] = copied(state, AT)
        shown = record.by_id["c1.0"]
        shown.reopen()
        assert (shown.args, shown.edited_by, shown.proposed) == ({"a": 2}, "eve", {"a": 1})
