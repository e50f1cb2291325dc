"""One pass over a journal gives frames, calls and spans whose states agree."""

from datetime import timedelta

from runtime.core.continuation import SETTLED
from runtime.core.machine.replay import Entry
from runtime.queries.journal import JournalLine
from runtime.queries.spans.fold import Fold, fold
from runtime.queries.spans.states import SpanResult, SpanState
from tests.core.machine.events import AT
from tests.core.machine.walks import Walk


def _folded(seed: int) -> Fold:
    lines = [
        JournalLine(
            position=number,
            entry=Entry(at=AT + timedelta(seconds=number), events=(event,)),
            mac="",
        )
        for number, event in enumerate(Walk(seed).history, 1)
    ]
    return fold(lines, start=AT)


def test_an_ended_run_has_no_open_span() -> None:
    for told in map(_folded, range(60)):
        if all(frame.outcome for frame in told.roots):
            for span in told.spans():
                assert span.start is None or span.end is not None, span.state
                assert span.end is None or span.state.result is not SpanResult.OPEN, span.state


def test_calls_recorded_in_the_original_are_called_so() -> None:
    forks = [_folded(seed).frames.values() for seed in range(3, 100, 10)]
    calls = [call for frames in forks for frame in frames for call in frame.calls]
    recorded = [call for call in calls if call.state in SETTLED and not call.spans]
    states = {span.state for call in recorded if not call.child for span in call.shown()}
    assert states == {SpanState.RECORDED}
