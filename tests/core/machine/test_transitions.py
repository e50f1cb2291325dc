"""The tables: absent keys are errors that name everything, attempts count, schemas are refused."""

from uuid import uuid4

import pytest

from runtime.core.commands import EndRun
from runtime.core.continuation import CallState
from runtime.core.documents.codec import HISTORY, decode_continuation, decode_entry, document_of
from runtime.core.errors import IllegalTransition, NewerSchema, UnknownSubject, Unreadable
from runtime.core.events import (
    CallAdmitted,
    Cancelling,
    Paused,
    Resumed,
    ToolReturned,
    ToolStarted,
)
from runtime.core.machine.planning import plan
from runtime.core.machine.reducer import evolve
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import STARTED, TERMS
from tests.core.machine.walks import AT


def test_an_illegal_transition_names_state_event_and_subject() -> None:
    now = fold(initial(uuid4()), STARTED)
    with pytest.raises(IllegalTransition) as raised:
        evolve(now, CallAdmitted(frame="0", call="c1.0", terms=TERMS))
    assert raised.value.state == CallState.STARTED
    assert raised.value.trigger == "CallAdmitted"
    assert raised.value.subject == "0/c1.0"


def test_an_outcome_of_another_attempt_is_refused() -> None:
    now = fold(initial(uuid4()), STARTED)
    with pytest.raises(IllegalTransition):
        evolve(now, ToolReturned(frame="0", call="c1.0", attempt=2, result=1))


def test_an_attempt_cannot_be_skipped() -> None:
    now = fold(initial(uuid4()), STARTED[:-1])
    with pytest.raises(IllegalTransition):
        evolve(now, ToolStarted(frame="0", call="c1.0", attempt=2, at=AT))


def test_a_run_ends_once_nothing_of_it_is_under_way() -> None:
    now = fold(initial(uuid4()), [*STARTED, Cancelling(by="ada", reason="enough")])
    assert plan(now) == ()
    returned = ToolReturned(frame="0", call="c1.0", attempt=1, result=1)
    assert plan(evolve(now, returned)) == (EndRun(),)


def test_a_run_is_paused_once_and_goes_on_once() -> None:
    paused, resumed = Paused(by="ada", reason=""), Resumed(by="bea")
    now = fold(initial(uuid4()), STARTED)
    with pytest.raises(IllegalTransition):
        evolve(now, resumed)
    with pytest.raises(IllegalTransition):
        fold(now, [paused, paused])
    assert fold(now, [paused, resumed]) == now
    for change in (paused, resumed):
        with pytest.raises(IllegalTransition):
            evolve(fold(now, [Cancelling(by="ada", reason="enough")]), change)


def test_a_frame_or_call_that_does_not_exist_is_named() -> None:
    now = fold(initial(uuid4()), STARTED)
    with pytest.raises(UnknownSubject, match="frame 7"):
        evolve(now, ToolStarted(frame="7", call="c1.0", attempt=1, at=AT))
    with pytest.raises(UnknownSubject, match=r"call 0/c1\.9"):
        evolve(now, ToolStarted(frame="0", call="c1.9", attempt=1, at=AT))


@pytest.mark.parametrize("read", [decode_entry, decode_continuation])
@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema":1}', '{"schema":"1"}', "\x00"])
def test_a_document_that_is_not_ours_is_unreadable(read: object, text: str) -> None:
    with pytest.raises(Unreadable):
        read(text)  # type: ignore[operator]


@pytest.mark.parametrize("read", [decode_entry, decode_continuation])
def test_a_newer_schema_is_refused_as_such(read: object) -> None:
    with pytest.raises(NewerSchema):
        read(f'{{"schema":{max(HISTORY) + 1},"anything":1}}')  # type: ignore[operator]


def test_the_continuation_has_the_documented_keys() -> None:

    document = document_of(fold(initial(uuid4()), STARTED))
    assert {"schema", "run", "position", "head", "agents", "frames", "pending"} <= set(document)
    assert document["frames"]["0"]["calls"][0]["id"] == "c1.0"
