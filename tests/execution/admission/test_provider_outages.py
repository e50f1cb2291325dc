"""A provider that does not answer: the run waits for it, says so, and asks people after a while."""

from datetime import timedelta

import pytest
from pytest_django import Settings

from runtime.core.enums import FailureCause, Verdict
from runtime.core.machine import retries
from runtime.models import Gate
from runtime.ports.effects import ModelFailure
from tests.support.engine import MakeBench, types
from tests.support.fake_ports import FakeTool, Script, ask, say, turns

OUT = ModelFailure(error="openai:a is in trouble (status 503)", retryable=True, model="openai:a")
NO_KEY = ModelFailure(
    error="the key for openai:a was refused (status 401)", retryable=True, cause=FailureCause.SETUP
)


def faulty(faults: list[ModelFailure], replies: Script) -> Script:
    """A model that first gives these faults, then replies."""
    return lambda request: faults.pop(0) if faults else replies(request)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "MIN_ROUND_SECONDS", 0.0)
    monkeypatch.setattr(retries, "_wait", lambda *terms: timedelta())


def test_a_provider_that_is_out_for_long_fails_no_run(rig: MakeBench) -> None:
    desk = rig({"a": faulty([OUT] * 20, turns(ask(("t", {})), say("done")))}, t=FakeTool())
    run = desk.advance(desk.start("a"))
    assert (run.status, run.awaits) == ("completed", None)
    assert len(desk.effects.calls) == 1


@pytest.mark.parametrize("fault", [OUT, NO_KEY])
def test_people_are_asked_once_the_time_is_over(
    rig: MakeBench, settings: Settings, fault: ModelFailure
) -> None:
    settings.ABEYANCE_OUTAGE_SECONDS = 0.0
    faults = [fault] * 99
    desk = rig({"a": faulty(faults, turns(say("done")))})
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    assert (run.status, gate.kind, gate.path) == ("suspended", "hold", ["a"])
    (shown,) = desk.approvals.snapshots
    assert shown.sentence == f"No reply comes from the model of a: {fault.error}"
    assert shown.args["last_answer"] == fault.error
    assert types(run.id)[-1] == "GateOpened"
    assert desk.answer(run.id, Verdict.CONTINUE).status == "suspended", "it is out still"
    faults.clear()
    assert desk.answer(run.id, Verdict.CONTINUE).status == "completed"
    assert Gate.objects.filter(run=run.id).count() == 2
