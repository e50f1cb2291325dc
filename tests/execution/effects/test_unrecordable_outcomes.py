"""An outcome that cannot be journaled is recorded once as a failure, and is not retried without end."""

from typing import Any

import pytest
from django.db import DataError

from runtime.core.enums import EffectClass
from runtime.core.events import Proposal
from runtime.core.limits import JSON_DEPTH
from runtime.models import Run
from runtime.ports.effects import ModelAnswer, ToolResult
from tests.execution.effects.test_validation import deep
from tests.support.engine import MakeBench, Rig, types
from tests.support.fake_ports import FakeTool, ask, say, turns

REPLY = ModelAnswer(reply={}, text="hi", model="\ud800")


def returning(value: Any, effect: EffectClass) -> FakeTool:
    return FakeTool(effect=effect, body=lambda _: ToolResult(value=value))


@pytest.mark.parametrize("depth", [JSON_DEPTH - 4, JSON_DEPTH])
@pytest.mark.parametrize("effect", [EffectClass.IDEMPOTENT, EffectClass.WRITE])
def test_the_deepest_result_is_journaled(rig: MakeBench, depth: int, effect: EffectClass) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=returning(deep(depth), effect))
    assert desk.advance(desk.start("a")).status == "completed"
    heard = desk.heard()
    assert (heard["content"], len(desk.effects.calls)) == (deep(depth), 1)


def test_the_deepest_reply_is_journaled(rig: MakeBench) -> None:
    desk = rig({"a": lambda _: ModelAnswer(reply=deep(JSON_DEPTH), text="hi")})
    run = desk.advance(desk.start("a"))
    assert (run.status, len(desk.effects.models)) == ("completed", 1)


def test_the_deepest_arguments_are_shown(rig: MakeBench) -> None:
    calls = (Proposal(tool="t", args=deep(JSON_DEPTH)),)
    asks = ModelAnswer(reply={}, text="", calls=calls)
    desk = rig({"a": turns(asks, say("done"))}, t=FakeTool(gated=True))
    desk.advance(desk.start("a"))
    assert desk.approvals.snapshots[0].args == deep(JSON_DEPTH)


@pytest.mark.parametrize("effect", [EffectClass.READ, EffectClass.IDEMPOTENT, EffectClass.WRITE])
def test_a_call_without_a_keepable_result_has_happened(rig: MakeBench, effect: EffectClass) -> None:
    """A read has failed: it can be made again."""
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=returning({1}, effect))
    assert desk.advance(desk.start("a")).status == "completed"
    heard = desk.heard()
    assert len(desk.effects.calls) == 1
    if effect is EffectClass.READ:
        assert heard["outcome"] == "failed"
        return
    assert (heard["outcome"], heard["content"]["happened"]) == ("returned", True)
    assert "set is not a JSON type" in heard["content"]["problem"]


def test_a_reply_that_no_entry_takes_is_paid_for_once(rig: MakeBench) -> None:
    desk = rig({"a": turns(REPLY)})
    run = desk.advance(desk.start("a"))
    assert (run.status, len(desk.effects.models)) == ("failed", 1)
    assert "cannot be kept: events[0].model" in (run.reason or "")


@pytest.mark.parametrize(
    ("effect", "last"),
    [
        (EffectClass.READ, "ToolFailed"),
        (EffectClass.WRITE, "ToolReturned"),
        (EffectClass.TRANSACTIONAL, "ToolFailed"),
    ],
)
def test_a_result_that_no_entry_takes_has_its_outcome(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch, effect: EffectClass, last: str
) -> None:
    monkeypatch.setattr(
        "runtime.execution.effects.perform.validate_outcome", lambda outcome: outcome
    )
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=returning("\ud800", effect))
    run = desk.advance(desk.start("a"))
    assert run.status == "completed"
    assert types(run.id)[-3:] == [last, "ModelReplied", "Completed"]


def test_a_step_that_postgres_refuses_parks_the_run(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.start("a")
    _refuse(desk, monkeypatch)
    parked = desk.advance(run)
    assert (parked.status, parked.due_at) == ("quarantined", None)
    assert "cannot be written: value too long" in (parked.reason or "")
    assert Run.objects.get(id=run).owner is None


def _refuse(desk: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise DataError("value too long")

    monkeypatch.setattr(desk.approvals, "open", refuse)
