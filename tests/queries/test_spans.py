"""One pass over a journal gives frames, calls and spans whose states agree."""

from datetime import timedelta

import pytest

from runtime.core.continuation import SETTLED
from runtime.core.machine.replay import Entry
from runtime.queries.journal import JournalLine
from runtime.queries.spans.fold import Fold, fold
from runtime.queries.spans.states import SpanResult, SpanState
from tests.core.machine.walks import AT, Walk

SEEDS = range(60)


def _folded(seed: int) -> Fold:
    events = Walk(seed).history
    return fold(
        (
            JournalLine(
                position=number,
                entry=Entry(at=AT + timedelta(seconds=number), events=(event,)),
                mac="",
            )
            for number, event in enumerate(events, 1)
        ),
        start=AT,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_ended_run_has_no_open_span(seed: int) -> None:
    told = _folded(seed)
    if not all(frame.outcome for frame in told.roots):
        return
    for span in told.spans():
        assert span.start is None or span.end is not None, span.state
        assert span.end is None or span.state.result is not SpanResult.OPEN, span.state


def test_calls_recorded_in_the_original_are_called_so() -> None:
    recorded = 0
    for seed in range(3, 100, 10):  # forks
        for frame in _folded(seed).frames.values():
            for call in frame.calls:
                if call.state in SETTLED and not call.spans and not call.child:
                    (span,) = call.shown()
                    assert span.state is SpanState.RECORDED
                    recorded += 1
    assert recorded
