"""The records of a step."""

from dataclasses import replace
from datetime import UTC, datetime
from uuid import UUID

from runtime.core.continuation import Call, CallState, Continuation, Frame
from runtime.core.events import WaitStarted
from runtime.store.records import Records, changed

UNTIL = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_wait_that_ends_in_its_own_step_is_not_written() -> None:
    call = Call(id="c1.0", tool="t", args={}, state=CallState.WAITING)
    frame = Frame(id="0", agent="a", fingerprint="f", prompt="p", turn=1, calls=(call,))
    lasts = Continuation(run=UUID(int=1), frames={"0": frame})
    ended = lasts.with_frame(frame.with_call(replace(call, state=CallState.RETURNED)))
    began = WaitStarted(frame="0", call="c1.0", until=UNTIL, event="reply")
    records = Records()
    records.add(changed(began))
    assert records.opened_waits(lasts) == (began,)
    assert records.opened_waits(ended) == ()
