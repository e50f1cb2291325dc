"""A worker yields a run of many steps when other runs wait."""

from types import SimpleNamespace
from uuid import UUID

import pytest

from runtime.broker import dispatch
from runtime.execution import yielding
from runtime.ports.effects import ToolRequest, ToolResult
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import FakeTool, ask, say, turns

CALLS = 6
pytestmark = pytest.mark.usefixtures("hints")


@pytest.fixture(autouse=True)
def after_four_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yielding, "STEPS", 4)


def long_one(rig: MakeBench) -> Rig:
    calls = [ask(("t", {"n": number})) for number in range(CALLS)]
    return rig({"a": turns(*calls, say("done"))}, t=FakeTool())


def test_a_run_of_many_steps_yields_to_waiting_runs(
    rig: MakeBench, hints: list[tuple[UUID, str]]
) -> None:
    desk = long_one(rig)
    run, other = desk.start("a"), desk.start("a")
    hints.clear()
    row = desk.advance(run)
    assert (row.status, row.owner) == ("queued", None)
    assert hints == [(run, dispatch.NEW)]
    assert 0 < len(desk.effects.calls) < CALLS
    while desk.advance(other).status != "completed":
        assert desk.advance(run).owner is None
    while desk.advance(run).status != "completed":
        pass
    assert len(desk.effects.calls) == 2 * CALLS


def test_a_run_continues_while_no_other_run_waits(rig: MakeBench) -> None:
    desk = long_one(rig)
    row = desk.advance(desk.start("a"))
    assert (row.status, row.epoch) == ("completed", 1)


def test_a_run_of_few_slow_steps_makes_room_after_its_time(
    rig: MakeBench, hints: list[tuple[UUID, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = long_one(rig)
    run, _ = desk.start("a"), desk.start("a")
    monkeypatch.setattr(yielding, "STEPS", 1000)
    clock = Clock(monkeypatch)
    desk.effects.tools["t"] = FakeTool(body=lambda request: clock.passes(request, 11.0))
    hints.clear()
    assert desk.advance(run).status == "queued"
    assert len(desk.effects.calls) == 3  # 33 s
    assert hints == [(run, dispatch.NEW)]


class Clock:
    """The clock of a yield policy; it advances by the time that tools take."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 0.0
        monkeypatch.setattr(yielding, "time", SimpleNamespace(monotonic=lambda: self._now))

    def passes(self, request: ToolRequest, seconds: float) -> ToolResult:
        self._now += seconds
        return ToolResult(value=request.args)
