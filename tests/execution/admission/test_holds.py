"""Gates of a frame: the agent stops, nothing new starts in it, and a person continues it or ends the run."""

from typing import NoReturn

import pytest

from runtime.core.enums import EffectClass, Verdict
from runtime.models import Gate, Run
from tests.support.engine import MakeBench, Rig, events, types
from tests.support.fake_ports import FakeTool, ask, say, turns

IDEMPOTENT = FakeTool(effect=EffectClass.IDEMPOTENT)
WHY = "a stops after every reply"


def held(desk: Rig, run: Run) -> Gate:
    (gate,) = desk.open_gates(run.id)
    assert (gate.kind, gate.call, gate.tool, gate.path) == ("hold", "", "", ["a"])
    return gate


@pytest.fixture
def held_run(rig: MakeBench) -> tuple[Rig, Run]:
    """A run that its agent has stopped after the first reply."""
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=IDEMPOTENT)
    desk.effects.holds = ["", WHY]
    return desk, desk.advance(desk.start("a"))


def test_a_held_agent_asks_its_model_only_after_a_decision(held_run: tuple[Rig, Run]) -> None:
    desk, run = held_run
    assert (run.status, run.due_at, len(desk.effects.models)) == ("suspended", None, 1)
    gate = held(desk, run)
    assert events(run.id)[-1]["reason"] == WHY
    desk.decide(gate.id, Verdict.CONTINUE)
    assert desk.advance(run.id).status == "completed"
    assert len(desk.effects.models) == 2
    assert Gate.objects.get(id=gate.id).state == "effective"


def test_to_stop_ends_the_run_with_the_reason(held_run: tuple[Rig, Run]) -> None:
    desk, run = held_run
    desk.decide(held(desk, run).id, Verdict.STOP, "it goes in circles")
    run = desk.advance(run.id)
    assert (run.status, run.reason) == ("cancelled", "it goes in circles")
    assert len(desk.effects.models) == 1
    assert types(run.id)[-3:] == ["GateDecided", "Cancelling", "Cancelled"]


@pytest.mark.parametrize("broken", ["requires_approval", "describe"])
def test_a_policy_error_keeps_the_reply_of_one_model_call(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def divides(*_: object, **__: object) -> NoReturn:
        raise ZeroDivisionError("a rule divides by zero")

    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=IDEMPOTENT)
    with monkeypatch.context() as patch:
        patch.setattr(desk.effects if broken == "describe" else desk.approvals, broken, divides)
        run = desk.advance(desk.start("a"))
        assert types(run.id)[-2:] == ["ModelReplied", "GateOpened"]
        assert "ZeroDivisionError" in str(events(run.id)[-1]["reason"])
        held(desk, run)
        run = desk.answer(run.id, Verdict.CONTINUE)
        assert desk.effects.calls == []
        held(desk, run)
    assert desk.answer(run.id, Verdict.CONTINUE).status == "completed"
    assert (len(desk.effects.models), len(desk.effects.calls)) == (2, 1)
