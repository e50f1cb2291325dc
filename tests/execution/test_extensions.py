"""A person extends the deadline of a gate: the run's journal says so, and the run expires at the new one."""

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from pydantic import TypeAdapter

from runtime.control.user_actions import extend
from runtime.control.verification import verify
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import GateExtended
from runtime.core.run.reducer import make_initial_state
from runtime.models import Run
from runtime.reads.journal import fold_last_state, read
from tests.support.engine import MakeBench, Rig, pause, resume, types
from tests.support.fake_ports import FakeTool, ask, say, turns

DAY = timedelta(days=1)
SIGNED = TypeAdapter(GateExtended)


def state(run: UUID) -> Continuation:
    return fold_last_state(make_initial_state(run), read(run))


@pytest.fixture
def desk(rig: MakeBench) -> Rig:
    tool = FakeTool(gated=True, expires_in=3600.0)
    return rig({"a": turns(ask(("t", {})), say("done"))}, t=tool)


def waiting(desk: Rig) -> tuple[UUID, datetime]:
    """Return a run that waits at a gate, and the gate's deadline."""
    run = desk.start("a")
    assert desk.advance(run).status == "suspended"
    [pending] = state(run).pending
    assert pending.expires_at is not None
    return run, pending.expires_at


def send(run: UUID, before: datetime, until: datetime) -> None:
    """Send an extension of the run's gate, as approvals do after their checks."""
    [pending] = state(run).pending
    place: dict[str, Any] = {"frame": pending.frame, "call": pending.call, "gate": pending.gate}
    signed = GateExtended(by="bea", reason="later", before=before, until=until, **place)
    extend(run=run, document=SIGNED.dump_json(signed).decode())


def test_the_journal_has_each_extension_and_the_run_is_due_at_the_last(desk: Rig) -> None:
    run, due = waiting(desk)
    send(run, due, due + DAY)
    send(run, due + DAY, due + 2 * DAY)
    assert desk.advance(run).status == "suspended"
    assert types(run)[-2:] == ["GateExtended", "GateExtended"]
    assert state(run).pending[0].expires_at == due + 2 * DAY
    assert Run.objects.get(pk=run).due_at == due + 2 * DAY
    assert verify(run).is_consistent
    assert desk.answer(run).status == "completed"


def test_a_paused_run_takes_it_too(desk: Rig) -> None:
    run, due = waiting(desk)
    pause(run)
    send(run, due, due + DAY)
    assert desk.advance(run).status == "paused"
    assert types(run)[-1] == "GateExtended"
    resume(run)
    assert desk.advance(run).status == "suspended"


@pytest.mark.parametrize(("before", "until"), [(DAY, 2 * DAY), (-DAY, DAY)])
def test_one_that_does_not_follow_the_present_deadline_changes_nothing(
    desk: Rig, before: timedelta, until: timedelta
) -> None:
    """It was read twice, or the one before it was removed."""
    run, due = waiting(desk)
    send(run, due + before, due + until)
    assert desk.advance(run).status == "suspended"
    assert "GateExtended" not in types(run)
    assert verify(run).is_consistent


def test_one_that_no_person_signed_quarantines_the_run(desk: Rig) -> None:
    run, due = waiting(desk)
    desk.approvals.forged = True
    send(run, due, due + DAY)
    assert desk.advance(run).status == "quarantined"
    assert "GateExtended" not in types(run)
