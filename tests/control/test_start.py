"""Starting runs and settling gates: business keys, transactions, one winner."""

import json
from uuid import UUID, uuid4

import psycopg
import pytest
from django.db import transaction

from runtime.broker import dispatch
from runtime.control.settle import undo
from runtime.control.start import Started, create
from runtime.core.documents.compression import plain_text
from runtime.core.enums import Verdict
from runtime.core.errors import NotJson
from runtime.errors import BusinessKeyConflict, GateNotOpen
from runtime.models import JournalEntry, Run, Signal
from runtime.ports.access import Actor
from runtime.store import pool, starts
from tests.support.engine import ADA, MakeBench, body, mac
from tests.support.fake_ports import FakeTool, ask, say, turns


@pytest.fixture
def hints(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    sent: list[UUID] = []
    monkeypatch.setattr(dispatch, "dispatch", lambda run, queue="": sent.append(run))
    return sent


def start(value: object, key: str | None = None, requester: Actor = ADA) -> Started:
    with transaction.atomic():
        return create(agent="a", input=value, requester=requester, business_key=key)


@pytest.mark.django_db(transaction=True)
def test_a_started_run_is_due_signed_and_hinted_at(hints: list[UUID]) -> None:
    started = start({"x": 1})
    run = Run.objects.get(id=started.run)
    assert (run.status, run.position, json.loads(run.input)) == ("queued", 1, {"x": 1})
    assert run.due_at is not None
    assert started.run.version == 7
    assert mac(run_id=run.id) == run.head
    assert hints == [started.run]


@pytest.mark.django_db(transaction=True)
def test_a_rolled_back_run_is_not_hinted(hints: list[UUID]) -> None:
    with transaction.atomic():
        create(agent="a", input={}, requester=ADA)
        transaction.set_rollback(True)
    assert (Run.objects.count(), hints) == (0, [])


@pytest.mark.django_db(transaction=True)
def test_a_run_and_its_first_entry_are_committed_together(
    hints: list[UUID], monkeypatch: pytest.MonkeyPatch
) -> None:
    started = create(agent="a", input={}, requester=ADA, business_key="k")
    assert mac(run_id=started.run) == Run.objects.get().head
    again = create(agent="a", input={}, requester=ADA, business_key="k")
    assert (again.run, again.created, hints) == (started.run, False, [started.run])
    with pool.pooled() as connection:
        born, _ = starts.peek(connection)
    JournalEntry.objects.create(
        run_id=born.run, position=1, body="", mac="", key_id="", commit_id=uuid4()
    )
    with pytest.raises(psycopg.errors.UniqueViolation):
        create(agent="a", input={}, requester=ADA, born=born)
    assert (Run.objects.count(), len(hints)) == (1, 1)


@pytest.mark.django_db(transaction=True)
def test_the_same_business_key_and_input_find_the_same_run(hints: list[UUID]) -> None:
    first, second = start({"x": 1}, "k"), start({"x": 1}, "k")
    assert (first.run, first.created, second.created) == (second.run, True, False)
    assert hints == [first.run]
    stored = body(run_id=first.run)
    assert stored.startswith('{"schema":8,"z":"')
    entry = json.loads(plain_text(stored))
    assert entry["events"][0]["business_key"] == "k"
    with pytest.raises(BusinessKeyConflict):
        start({"x": 2}, "k")
    with pytest.raises(NotJson, match=r"input\.x"):
        start({"x": float("nan")}, "k")
    assert start({"x": 1}, "k", Actor(person="bea")).created


@pytest.mark.django_db
def test_undo_insists_on_the_callers_transaction(rig: MakeBench) -> None:
    with pytest.raises(transaction.TransactionManagementError):
        undo(gate=uuid4())


def test_a_gate_is_settled_once_and_its_run_is_due_at_once(rig: MakeBench) -> None:
    desk = rig({"a": turns(ask(("t", {})), say("done"))}, t=FakeTool(gated=True))
    run = desk.advance(desk.start("a"))
    (gate,) = desk.open_gates(run.id)
    desk.decide(gate.id, Verdict.APPROVE)
    with pytest.raises(GateNotOpen):
        desk.decide(gate.id, Verdict.DENY, "too late")
    after = Run.objects.get(id=run.id)
    assert after.due_at is not None
    assert after.mailbox == run.mailbox + 1
    assert Signal.objects.count() == 1
