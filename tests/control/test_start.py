"""Starting runs, settling gates, and trying a failed run again."""

import json
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import transaction
from django.utils import timezone

from runtime import broker
from runtime.control.interventions import retry as retry_run
from runtime.control.start import Started, create
from runtime.control.user_actions import undo
from runtime.control.verification import verify
from runtime.core.documents.codec import decode_stored_text
from runtime.core.run.continuation import MAX_REFUSALS
from runtime.core.values.enums import Verdict
from runtime.core.values.errors import NotJson
from runtime.errors import BusinessKeyConflict, GateNotOpen, NotFailed
from runtime.models import Gate, JournalEntry, Run, Signal
from runtime.ports.access import Actor
from runtime.ports.effects import ModelFailure, Unknown
from runtime.store import pool, runs
from tests.support.engine import ADA, MakeBench, Rig, body, events, mac
from tests.support.fake_ports import FakeTool, Script, ask, say, turns


def start(value: object, key: str | None = None, requester: Actor = ADA) -> Started:
    with transaction.atomic():
        return create(agent="a", input=value, requester=requester, business_key=key)


def test_a_run_and_its_first_entry_are_committed_together(
    hints: list[tuple[UUID, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = create(agent="a", input={}, requester=ADA, business_key="k")
    assert mac(run_id=started.run) == Run.objects.get().head
    with pool.pooled() as connection:
        born, _ = runs.peek_start(connection)
    JournalEntry.objects.create(
        run_id=born.run, position=1, body="", mac="", key_id="", commit_id=uuid4()
    )
    with pytest.raises(psycopg.errors.UniqueViolation):
        create(agent="a", input={}, requester=ADA, born=born)
    assert (Run.objects.count(), hints) == (1, [(started.run, broker.NEW)])


def test_the_same_business_key_and_input_find_the_same_run(hints: list[tuple[UUID, str]]) -> None:
    first, second = start({"x": 1}, "k"), start({"x": 1}, "k")
    assert (first.run, first.created, second.created) == (second.run, True, False)
    assert (hints, first.run.version) == ([(first.run, broker.NEW)], 7)
    run = Run.objects.get(id=first.run)
    assert (run.status, run.position, json.loads(run.input)) == ("queued", 1, {"x": 1})
    assert run.due_at is not None
    assert mac(run_id=run.id) == run.head
    stored = body(run_id=first.run)
    assert stored.startswith('{"schema":1,"z":"')
    entry = json.loads(decode_stored_text(stored))
    assert entry["events"][0]["business_key"] == "k"
    for other in (2, True):
        with pytest.raises(BusinessKeyConflict):
            start({"x": other}, "k")
    with pytest.raises(NotJson, match=r"input\.x"):
        start({"x": float("nan")}, "k")
    assert start({"x": 1}, "k", Actor(person="bea")).created
    hints.clear()
    with transaction.atomic():
        rolled_back = create(agent="a", input={}, requester=ADA)
        transaction.set_rollback(True)
    assert (Run.objects.filter(id=rolled_back.run).count(), hints) == (0, [])


def test_a_gate_is_settled_once_and_its_run_is_due_at_once(gated: Rig) -> None:
    run = gated.advance(gated.start("a"))
    (gate,) = gated.open_gates(run.id)
    gated.decide(gate.id, Verdict.APPROVE)
    with pytest.raises(GateNotOpen):
        gated.decide(gate.id, Verdict.DENY, "too late")
    with pytest.raises(transaction.TransactionManagementError):
        undo(gate=gate.id)
    after = Run.objects.get(id=run.id)
    assert after.due_at is not None
    assert after.mailbox == run.mailbox + 1
    assert Signal.objects.count() == 1


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
    assert desk.approvals.notes[-1][1:] == (ADA, "retried", {"reason": "the model is mended"})
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
    assert desk.approvals.requests[-1].origin == ("ada", "eve")
    assert verify(run.id).findings == ()
    Run.objects.filter(id=run.id).update(origin=["ada"])
    assert [one.subject for one in verify(run.id).findings] == ["origin"]
