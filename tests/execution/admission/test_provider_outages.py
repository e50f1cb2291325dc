"""A provider that does not answer: the run waits for it, says so, and asks people after a while."""

from datetime import datetime, timedelta

import pytest
from django.db.models import Q
from pytest_django import Settings

from runtime.core.enums import FailureCause, Verdict
from runtime.core.machine import retries
from runtime.models import Gate, Run
from runtime.ports.effects import ModelFailure
from runtime.queries import runs
from runtime.queries.transcript.transcript import read_transcript
from tests.support.engine import MakeBench, Rig, events, types
from tests.support.fake_ports import FakeTool, Script, ask, say, turns

GATED = FakeTool(gated=True)
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


def waiting(desk: Rig, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A run whose model call failed and is repeated much later."""
    monkeypatch.setattr(retries, "MIN_ROUND_SECONDS", 200.0)
    return desk.advance(desk.start("a"))


def test_a_provider_that_is_out_for_long_fails_no_run(rig: MakeBench) -> None:
    desk = rig({"a": faulty([OUT] * 20, turns(ask(("t", {})), say("done")))}, t=FakeTool())
    run = desk.advance(desk.start("a"))
    assert (run.status, run.awaits) == ("completed", None)
    assert len(desk.effects.calls) == 1


def test_one_refused_key_after_an_approval_fails_no_run(rig: MakeBench) -> None:
    faults: list[ModelFailure] = []
    desk = rig({"a": faulty(faults, turns(ask(("t", {})), say("done")))}, t=GATED)
    run = desk.advance(desk.start("a"))
    faults.append(NO_KEY)
    assert desk.answer(run.id).status == "completed"
    assert len(desk.effects.calls) == 1


def test_a_waiting_run_shows_its_next_try_and_error(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": faulty([OUT] * 9, turns(say("done")))})
    run = waiting(desk, monkeypatch)
    assert (run.status, run.awaits, run.owner) == ("waiting", OUT.error, None)
    found = runs.run_detail(Q(), run.id)
    assert found is not None
    assert found.next_try_at == run.due_at
    assert run.due_at is not None
    at = run.due_at.isoformat(timespec="seconds")
    said = f"waits for the provider, next try {at}, last answer: {OUT.error}"
    assert found.status_text == said
    (line,) = runs.runs_page(Q()).items
    assert line.status_text == said
    outage = read_transcript(run.id).outage
    assert outage is not None
    assert (outage.error, outage.until) == (OUT.error, run.due_at)


def test_a_run_that_got_its_reply_waits_for_no_provider(rig: MakeBench) -> None:
    desk = rig({"a": faulty([OUT] * 9, turns(ask(("t", {})), say("done")))}, t=GATED)
    run = desk.advance(desk.start("a"))
    assert (run.status, run.awaits) == ("suspended", None)
    assert read_transcript(run.id).outage is None


@pytest.mark.parametrize("fault", [OUT, NO_KEY])
def test_people_are_asked_once_the_time_is_over(
    rig: MakeBench, settings: Settings, fault: ModelFailure
) -> None:
    settings.ABEYANCE_OUTAGE_SECONDS = 0.0
    faults = [fault] * 9
    desk = rig({"a": faulty(faults, turns(say("done")))})
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    assert (run.status, gate.kind, gate.path) == ("suspended", "hold", ["a"])
    (shown,) = desk.approvals.snapshots
    assert shown.sentence == f"No reply comes from the model of a: {fault.error}"
    assert shown.args["last_answer"] == fault.error
    assert types(run.id)[-1] == "GateOpened"
    faults.clear()
    desk.decide(gate.id, Verdict.CONTINUE)
    assert desk.advance(run.id).status == "completed"


def test_a_provider_that_stays_out_asks_people_again(rig: MakeBench, settings: Settings) -> None:
    settings.ABEYANCE_OUTAGE_SECONDS = 0.0
    desk = rig({"a": faulty([OUT] * 99, turns(say("done")))})
    run = desk.advance(desk.start("a"))
    run = desk.answer(run.id, Verdict.CONTINUE)
    assert Gate.objects.filter(run=run.id).count() == 2
    assert desk.answer(run.id, Verdict.STOP, "another provider").status == "cancelled"


def test_a_day_without_answer_is_journaled_as_such(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk = rig({"a": faulty([OUT] * 9, turns(say("done")))})
    run = waiting(desk, monkeypatch)
    retry = events(run.id)[-1]
    since, asks_at = (datetime.fromisoformat(str(retry[name])) for name in ("since", "asks_at"))
    assert asks_at - since == timedelta(days=1)
