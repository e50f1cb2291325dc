"""Trying a failed run again: the same run continues from where it failed, and no effect is repeated."""

from uuid import UUID

import pytest
from django.utils import timezone

from runtime.control.retry import retry as retry_run
from runtime.control.verification import verify
from runtime.core.continuation import MAX_REFUSALS
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


def test_only_a_failed_run_that_is_kept_is_tried_again(rig: MakeBench) -> None:
    desk = rig({"a": failing([], turns(ask(("t", {})), say("done")))}, t=GATED)
    run = desk.advance(desk.start("a")).id
    for status in ("suspended", "completed", "cancelled", "exported", "removed"):
        kept = {"removed_at": timezone.now()} if status == "removed" else {"status": status}
        Run.objects.filter(id=run).update(**{"status": "failed", **kept})
        before = Run.objects.values().get(id=run)
        with pytest.raises(NotFailed) as raised:
            retry(run)
        assert raised.value.run_status == status
        assert Run.objects.values().get(id=run) == before


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
