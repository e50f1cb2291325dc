"""Trying a failed run again: the same run continues from where it failed, and no effect is repeated."""

from uuid import UUID

import pytest
from django.db import transaction

from runtime.control.cancel import cancel
from runtime.control.retry import retry as retry_run
from runtime.control.transfer import export_run
from runtime.control.verification import verify
from runtime.core.continuation import MAX_REFUSALS
from runtime.core.enums import Verdict
from runtime.errors import NotFailed
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure, Unknown
from tests.support.engine import ADA, MakeBench, Rig, events
from tests.support.fake_ports import FakeTool, Script, ask, say, turns

BAD = ModelFailure(error="openai:a rejected the request (status 400)")
GATED = FakeTool(gated=True)


def failing(faults: list[ModelFailure], replies: Script) -> Script:
    """A model that fails with these faults in order, from its second turn on."""
    return lambda request: (
        faults.pop(0) if faults and len(request.messages) > 1 else replies(request)
    )


def retry(run: UUID, actor: Actor = ADA) -> None:
    retry_run(run=run, actor=actor, reason="the model is mended")


def failed(desk: Rig) -> Run:
    """A run that failed after its approved call was made."""
    run = desk.advance(desk.start("a"))
    run = desk.answer(run.id)
    assert (run.status, run.reason) == ("failed", BAD.error)
    return run


def test_a_failed_run_continues_from_its_last_good_step(rig: MakeBench) -> None:
    desk = rig({"a": failing([BAD], turns(ask(("t", {})), say("done")))}, t=GATED)
    run = failed(desk)
    retry(run.id)
    again = Run.objects.get(id=run.id)
    assert (again.status, again.ended_at, again.reason) == ("queued", None, None)
    assert verify(run.id).findings == ()
    again = desk.advance(run.id)
    assert (again.status, again.output) == ("completed", '"done"')
    assert len(desk.effects.calls) == 1
    assert Gate.objects.filter(run=run.id).count() == 1
    (entry,) = [event for event in events(run.id) if event["type"] == "Retried"]
    assert (entry["by"], entry["reason"]) == ("ada", "the model is mended")
    assert desk.approvals.notes[-1][2:] == ("retried", {"reason": "the model is mended"})
    assert verify(run.id).findings == ()


@pytest.mark.parametrize("end", ["completed", "cancelled", "exported", "suspended", "removed"])
def test_only_a_failed_run_that_is_kept_is_tried_again(rig: MakeBench, end: str) -> None:
    faults = [BAD] if end == "removed" else []
    desk = rig({"a": failing(faults, turns(ask(("t", {})), say("done")))}, t=GATED)
    run = desk.advance(desk.start("a"))
    if end in ("completed", "removed"):
        desk.decide(desk.open_gates(run.id)[0].id, Verdict.APPROVE)
    with transaction.atomic():
        if end == "cancelled":
            cancel(run=run.id, actor=ADA, reason="enough")
        if end == "exported":
            export_run(run=run.id, actor=ADA)
    desk.advance(run.id)
    if end == "removed":
        Run.objects.filter(id=run.id).update(removed_at="2026-01-01T00:00:00Z")
    position = Run.objects.get(id=run.id).position
    with pytest.raises(NotFailed) as raised:
        retry(run.id)
    assert raised.value.run_status == end
    assert Run.objects.get(id=run.id).position == position


def test_a_call_in_doubt_is_not_repeated(rig: MakeBench) -> None:
    nonsense = [("nothing", {"n": n}) for n in range(MAX_REFUSALS)]
    lost = FakeTool(body=lambda request: Unknown(error="the line was cut"))
    desk = rig({"a": turns(ask(("t", {}), *nonsense), say("done"))}, t=lost)
    run = desk.advance(desk.start("a"))
    assert run.status == "failed"
    retry(run.id)
    run = desk.advance(run.id)
    gates = [gate.kind for gate in desk.open_gates(run.id)]
    assert (run.status, gates, len(desk.effects.calls)) == ("suspended", ["in_doubt"], 1)


def test_a_cancel_that_came_too_late_does_not_end_the_second_try(rig: MakeBench) -> None:
    desk = rig({"a": failing([BAD], turns(ask(("t", {})), say("done")))}, t=GATED)
    run = failed(desk)
    Signal.objects.create(run=run, kind="cancel", body='{"by": "ada", "reason": "late"}')
    retry(run.id)
    assert desk.advance(run.id).status == "completed"


def test_a_person_who_tries_it_again_cannot_decide_in_it(rig: MakeBench) -> None:
    """Another answer of the model is a change of course, so this person joins the run's origin."""
    desk = rig({"a": failing([BAD], turns(ask(("t", {})), ask(("t", {})), say("done")))}, t=GATED)
    run = failed(desk)
    retry(run.id, Actor(person="eve"))
    assert desk.approvals.joined == [(run.id, "eve")]
    assert Run.objects.get(id=run.id).origin == ["ada", "eve"]
    assert desk.advance(run.id).status == "suspended"
    assert len(desk.effects.calls) == 1, "its used approval allows nothing more"
    assert desk.approvals.snapshots[-1].origin == ("ada", "eve")
    assert verify(run.id).findings == ()
    Run.objects.filter(id=run.id).update(origin=["ada"])
    assert [one.subject for one in verify(run.id).findings] == ["origin"]
