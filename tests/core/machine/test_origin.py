"""The origin of a run, folded from its journal."""

from typing import Any
from uuid import uuid4

import pytest

from runtime.core.documents.upcasters import upcast
from runtime.core.events import (
    CallAdmitted,
    Exported,
    Forked,
    Imported,
    MessageReceived,
    WaitEnded,
    WaitStarted,
)
from runtime.core.machine.forks import forked
from runtime.core.machine.replay import fold, initial
from tests.core.machine.events import after, begun, options, replied
from tests.core.machine.walks import AT

WROTE = MessageReceived(by="bea", text="hello")


def test_an_event_adds_its_sender() -> None:
    place: dict[str, Any] = {"frame": "0", "call": "c1.0"}
    now = after(
        replied("wait_for"),
        CallAdmitted(terms=options(), **place),
        WaitStarted(until=AT, event="paid", **place),
        WaitEnded(outcome="arrived", result={}, by="bea", **place),
    )
    assert now.origin == ("ada", "bea")


def test_a_fork_has_the_origin_of_its_original() -> None:
    state = forked(after(WROTE, WROTE))
    for origin, people in ((state["origin"], ("ada", "bea", "eve")), ([], ("ada", "eve"))):
        event = Forked(of=uuid4(), position=4, by="eve", state={**state, "origin": origin})
        now = fold(initial(uuid4()), [begun(requester="eve"), event])
        assert now.origin == people


def test_an_import_comes_from_both_sides() -> None:
    taken = Imported(by="ivy", manifest="", key="", signature="")
    assert after(Exported(by="eve"), taken).origin == ("ada", "ivy")


@pytest.mark.parametrize(
    ("more", "origin"),
    [
        ({"unheard": [{"by": "bea", "text": ""}]}, ["ada", "bea"]),
        ({"frames": {"0": {"messages": [{"role": "message", "by": "bea"}]}}}, ["ada", "bea"]),
        ({"frames": None, "unheard": 5}, ["ada"]),
    ],
)
def test_a_document_of_before_says_who_wrote(more: dict[str, Any], origin: list[str]) -> None:
    assert upcast({"schema": 3, "requester": "ada", **more})["origin"] == origin
