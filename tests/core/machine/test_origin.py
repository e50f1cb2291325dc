"""The origin of a run, folded from its journal."""

from typing import Any
from uuid import uuid4

import pytest

from runtime.core.documents.codec import decode_continuation, encode_continuation
from runtime.core.documents.upcasters import upcast
from runtime.core.events import (
    CallAdmitted,
    Exported,
    Forked,
    Imported,
    MessageReceived,
    Paused,
    WaitEnded,
    WaitStarted,
)
from runtime.core.machine.forks import forked
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import after, begun, options, replied
from tests.core.machine.walks import AT

WROTE = MessageReceived(by="bea", text="hello")


def test_a_run_comes_from_its_requester() -> None:
    assert after().origin == ("ada",)


def test_a_message_adds_its_writer_once() -> None:
    assert after(WROTE, WROTE).origin == ("ada", "bea")


def test_an_event_adds_its_sender() -> None:
    place: dict[str, Any] = {"frame": "0", "call": "c1.0"}
    now = after(
        replied("wait_for"),
        CallAdmitted(terms=options(), **place),
        WaitStarted(until=AT, event="paid", **place),
        WaitEnded(outcome="arrived", result={}, by="bea", **place),
    )
    assert now.origin == ("ada", "bea")


def test_a_pause_adds_no_person() -> None:
    assert after(Paused(by="bea", reason="")).origin == ("ada",)


def test_a_fork_has_the_origin_of_its_original() -> None:
    state = forked(after(WROTE))
    event = Forked(of=uuid4(), position=4, by="eve", state=state)
    now = fold(initial(uuid4()), [begun(requester="eve"), event])
    assert now.origin == ("ada", "bea", "eve")


def test_a_fork_of_before_comes_from_the_original_requester() -> None:
    state = {**forked(after()), "origin": []}
    event = Forked(of=uuid4(), position=4, by="eve", state=state)
    now = fold(initial(uuid4()), [begun(requester="eve"), event])
    assert now.origin == ("ada", "eve")


def test_an_import_comes_from_both_sides() -> None:
    taken = Imported(by="ivy", manifest="", key="", signature="")
    assert after(Exported(by="eve"), taken).origin == ("ada", "ivy")


def test_the_origin_is_stored() -> None:
    now = after(WROTE)
    assert decode_continuation(encode_continuation(now)).origin == ("ada", "bea")


@pytest.mark.parametrize(
    ("document", "origin"),
    [
        ({"requester": "ada", "unheard": [{"by": "bea", "text": ""}]}, ["ada", "bea"]),
        (
            {"requester": "ada", "frames": {"0": {"messages": [{"role": "message", "by": "bea"}]}}},
            ["ada", "bea"],
        ),
        ({"requester": "ada", "frames": None, "unheard": 5}, ["ada"]),
    ],
)
def test_a_document_of_before_says_who_wrote(
    document: dict[str, object], origin: list[str]
) -> None:
    assert upcast({"schema": 3, **document})["origin"] == origin
