"""An allowance passes exactly the calls that two people agreed on, and a person is asked about every other one."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Barrier
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals import clock
from approvals.decisions.decide import undo
from approvals.errors import TooLate
from approvals.governance import allowance_changes, allowance_uses, allowances
from approvals.models import AllowanceAct, Approval, ApprovalOutcome, AuditEntry
from approvals.people import absences
from approvals.requests import snapshot, verification
from approvals.signed import audit
from runtime.control.verification import verify
from runtime.core.run.events import AllowanceUse, GateDecided, ToolStarted
from runtime.core.run.reducer import make_initial_state
from runtime.core.values.enums import Verdict
from runtime.execution import worker
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.steps import Records
from runtime.store.tables import journal
from tests.approvals.allowances.office import ANY, BEA, CORA, in_force, reviewers
from tests.approvals.policies.office import put_in_force
from tests.support import office as office_module
from tests.support import seeds
from tests.support.calls import around
from tests.support.fake_ports import ask, say, turns
from tests.support.office import Office, reseal
from tests.support.threads import together

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def first(office: Office) -> Approval:
    """A request of Ada's run, and the people who may decide it."""
    reviewers("cora", "dan")
    return office.request(office.start())


def passed(office: Office, **given: Any) -> bool:
    """Start a run of Ada's, and tell whether its call started without a person."""
    run = office.start(**given)
    approval = Approval.objects.get(run=run, tool="set_privileges")
    assert office.started(run) == (approval.status == "approved")
    assert verify(run).findings == ()
    return approval.status == "approved"


def test_a_call_within_the_limits_is_passed_and_recorded(office: Office, first: Approval) -> None:
    allowance = in_force(first, count=2)
    run = office.start(args={"username": "other", "security_level": 2})
    assert Run.objects.get(pk=run).status == "completed"
    approval = Approval.objects.get(run=run)
    assert (approval.status, approval.decided_by, approval.channel) == (
        "approved",
        "cora",
        "allowance",
    )
    assert (approval.allowance, approval.allowance_use) == (allowance, 1)
    assert ApprovalOutcome.objects.get(approval=approval).outcome == "done"
    assert verification.find_fault(approval) is None
    assert audit.verify(run)
    entry = AuditEntry.objects.get(run=run, act="approved")
    assert "made by" in entry.detail
    assert str(allowance) in entry.detail
    with pool.pooled() as database:
        entries = journal.read_history(database, run).entries
        events = [one for _, entry in entries for one in entry.events]
    (decided,) = (one for one in events if isinstance(one, GateDecided))
    assert decided.allowance is not None
    assert (decided.allowance.id, decided.allowance.number, decided.allowance.of) == (
        allowance,
        1,
        2,
    )
    assert decided.allowance.by == ("bea", "cora")
    assert any(isinstance(one, ToolStarted) for one in events)
    assert verify(run).findings == ()
    with pytest.raises(TooLate):
        undo(approval_id=approval.id, actor=CORA)
    (call,) = (
        one for one in office.effects.calls if one.run == run and one.tool == "set_privileges"
    )
    assert call.approvers == ("bea", "cora")


def test_two_calls_of_a_turn_take_two_uses(office: Office, first: Approval) -> None:
    in_force(first, count=1)
    office.ask_twice()
    run = office.start()
    found = Approval.objects.filter(run=run).order_by("created_at")
    assert [approval.status for approval in found] == ["approved", "pending"]
    assert verify(run).findings == ()


Change = Callable[[UUID, Office], object]


def rule(text: str) -> Change:
    return lambda allowance, office: put_in_force(f"rules: [{{{text}}}]")


OTHERS = rule("name: Dan, people: [dan, bea]")


def others_and_a_deputy(allowance: UUID, office: Office) -> None:
    """Cora may now decide only in the place of dan."""
    now = clock.read_time()
    absences.announce(
        deputy="cora", starts=now, ends=now + timedelta(days=1), actor=Actor(person="dan")
    )
    OTHERS(allowance, office)


def another_schema(allowance: UUID, office: Office) -> None:
    properties = {**office_module.SCHEMA["properties"], "more": {}}
    office_module.SCHEMA = {**office_module.SCHEMA, "properties": properties}


MORE_USES = (
    "UPDATE approvals_allowanceact SET terms = replace(terms, '\"count\":10', '\"count\":11')"
)


def a_use_is_gone(allowance: UUID, office: Office) -> None:
    assert passed(office)
    assert passed(office)
    _write("DELETE FROM approvals_allowanceact WHERE act = 'used' AND seq = 3")


CHANGES: dict[str, Change] = {
    "revoked": lambda allowance, office: allowance_changes.revoke(
        allowance, actor=Actor(person="dan")
    ),
    "disabled": lambda *_: User.objects.filter(username="bea").update(is_active=False),
    "no reviewer": lambda *_: User.objects.get(username="cora").groups.clear(),
    "two people": rule("name: Two, quorum: 2"),
    "a reason": rule("name: Why, reason: required"),
    "high": rule("name: High, risk: high"),
    "others": OTHERS,
    "others and a deputy": others_and_a_deputy,
    "another schema": another_schema,
    "forged": lambda *_: _write(MORE_USES),
    "a use is gone": a_use_is_gone,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_person_is_asked_again_after(
    change: str, office: Office, first: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(office_module, "SCHEMA", office_module.SCHEMA)  # put back at the end
    CHANGES[change](in_force(first), office)
    assert not passed(office)


def test_a_person_is_asked_about_an_odd_value(office: Office, first: Approval) -> None:
    in_force(first, count=30)
    assert all(passed(office) for _ in range(10))
    assert passed(office)
    assert not passed(office, args={"username": "newh\u0456re", "security_level": 3})
    assert not passed(office, args={"username": "newhire", "security_level": -3000})


def test_a_call_equal_to_the_original_of_an_edit_is_asked_about(
    office: Office, first: Approval
) -> None:
    twice = ("set_privileges", {"username": "newhire", "security_level": 4})
    office.effects.agents["account_agent"] = turns(ask(twice), ask(twice), say("Done."))
    run = office.start()
    seeds.decide(office.request(run), BEA, "edit", arguments={"username": "x", "security_level": 3})
    in_force(first, limits={"username": ANY, "security_level": ANY})
    office.advance(run)
    assert [
        approval.status for approval in Approval.objects.filter(run=run).order_by("created_at")
    ] == ["approved", "pending"]


@pytest.mark.parametrize("requester", ["bea", "cora"])
def test_no_maker_is_passed_in_their_own_run(
    requester: str, office: Office, first: Approval
) -> None:
    in_force(first)
    assert not passed(office, requester=requester)
    assert passed(office, requester="dan")


def test_an_ended_one_passes_nothing(office: Office, first: Approval) -> None:
    allowance = in_force(first)
    found = allowances.read_allowance(allowance)
    assert found is not None
    assert found.state(found.terms.ends_at - timedelta(seconds=1)) == "in force"
    assert found.state(found.terms.ends_at) == "ended"


def test_a_call_that_was_passed_is_asked_about_when_it_comes_again(
    office: Office, first: Approval, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after its run was put back to an earlier state."""
    in_force(first)
    calls: list[tuple[Any, ...]] = []
    around(monkeypatch, allowance_uses, "allow", before=lambda *given: calls.append(given))
    office.start()
    office.start()
    (call, _), _ = calls
    assert allowance_uses.allow(call, {}) is None
    assert allowance_uses.allow(replace(call, call="c7.0"), {}) is not None


def test_it_is_verified_again_before_the_call_starts(office: Office, first: Approval) -> None:
    """The step that passes the call is written, and then nothing starts before the allowance is read again."""
    in_force(first)
    run = office.start(args={"username": "late", "security_level": 1})
    approval = Approval.objects.get(run=run)
    assert allowance_uses.verify(approval, ()).by == ("bea", "cora")
    with pytest.raises(ApprovalVoid, match="bea made the allowance"):
        allowance_uses.verify(approval, ("bea",))
    _write("DELETE FROM approvals_allowanceact WHERE act = 'used'")
    with pytest.raises(NotConfirmed, match="not stored"):
        allowance_uses.verify(approval, ())
    problems = [one.problem for one in verify(run).findings]
    assert problems == ["the use of the allowance is not stored"]


def test_a_revocation_stops_a_passed_call(office: Office, first: Approval) -> None:
    allowance = in_force(first)
    approval = Approval.objects.get(run=office.start())
    allowance_changes.revoke(allowance, actor=None)
    with pytest.raises(ApprovalVoid, match="is revoked"):
        allowance_uses.verify(approval, ())


def _put(approvals: list[Approval], **values: Any) -> None:
    for approval in approvals:
        for name, value in values.items():
            setattr(approval, name, value)


def _digest(approvals: list[Approval], **values: Any) -> None:
    """Change requests and their digests, which need no key."""
    _put(approvals, **values)
    for approval in approvals:
        approval.action_digest = snapshot.compute_action_digest(approval) or ""
        approval.approval_digest = snapshot.compute_approval_digest(approval)


FORGED: tuple[tuple[Callable[..., None], dict[str, Any], str], ...] = (
    (_put, {"args": '{"username":"root","security_level":3}'}, "the stored call"),
    (_put, {"allowance_use": 2}, "the stored request"),
    (_put, {"allowance": uuid4()}, "the stored request"),
    (_digest, {"args": '{"username":"root","security_level":3}'}, "the sealed one"),
    (reseal, {"allowance_use": 11}, "was used up"),
    (reseal, {"risk": "high"}, "the risk is high"),
    (reseal, {"allowance": uuid4()}, "no allowance of this request"),
)


def test_a_request_cannot_be_passed_by_hand(office: Office, first: Approval) -> None:
    """A program that writes to Postgres copies a confirmation to a request of its own, even to a sealed one."""
    in_force(first)
    run = office.start()
    for put, values, why in FORGED:
        with transaction.atomic():
            approval = Approval.objects.get(run=run)
            put([approval], **values)
            assert why in (verification.find_fault(approval) or ""), values
            with pytest.raises(NotConfirmed, match=why):
                allowance_uses.verify(approval, ())
            transaction.set_rollback(True)


def _write(statement: str) -> None:
    """Change rows as their owner can, without the trigger."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE approvals_allowanceact DISABLE TRIGGER USER")
        cursor.execute(statement)
        cursor.execute("ALTER TABLE approvals_allowanceact ENABLE TRIGGER USER")


# Races


WORKERS, COUNT = 20, 10


def runs_of(office: Office, count: int) -> list[UUID]:
    return [office.start(requester="dan", advanced=False) for _ in range(count)]


def statuses(runs: list[UUID]) -> Counter[str]:
    return Counter(Approval.objects.filter(run__in=runs).values_list("status", flat=True))


def advance(office: Office, run: UUID, ready: Barrier) -> None:
    ready.wait()
    office.advance(run)


@pytest.mark.slow
def test_of_twenty_workers_on_an_allowance_of_ten_exactly_ten_pass(office: Office) -> None:
    reviewers("cora", "dan")
    allowance = in_force(office.request(office.start()), count=COUNT)
    runs = runs_of(office, WORKERS)
    ready = Barrier(WORKERS, timeout=60)
    together([partial(advance, office, run, ready) for run in runs])
    assert statuses(runs) == {"approved": COUNT, "pending": WORKERS - COUNT}
    assert sum(office.started(run) for run in runs) == COUNT
    used = AllowanceAct.objects.filter(allowance=allowance, act="used").order_by("seq")
    assert [one.seq for one in used] == list(range(3, 3 + COUNT))
    assert {one.run for one in used} == {one for one in runs if office.started(one)}
    assert not any(verify(run).findings for run in runs)


@pytest.mark.slow
def test_no_use_follows_a_revocation(office: Office) -> None:
    reviewers("cora", "dan")
    allowance = in_force(office.request(office.start()), count=WORKERS)
    runs = runs_of(office, WORKERS)
    ready = Barrier(WORKERS + 1, timeout=60)

    def revoke() -> None:
        ready.wait()
        allowance_changes.revoke(allowance, actor=None)

    together([*(partial(advance, office, run, ready) for run in runs), revoke])
    found = allowances.read_allowance(allowance)  # the revocation is the last act, or this raises
    assert found is not None
    assert found.revoked_at is not None
    assert statuses(runs)["approved"] == found.used
    assert sum(office.started(run) for run in runs) <= found.used
    assert not any(verify(run).findings for run in runs)


@pytest.mark.slow
def test_a_commit_whose_answer_is_lost_takes_one_use(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviewers("cora", "dan")
    allowance = in_force(office.request(office.start()), count=2)
    lost, row = list[str](), pool.fetch_row

    def answer(connection: Connection, statement: str, *given: Any, **more: Any) -> Any:
        found = row(connection, statement, *given, **more)
        if "INTO approvals_allowanceact" in statement and not lost:
            lost.append(statement)
            raise psycopg.OperationalError("the connection is lost")
        return found

    monkeypatch.setattr(pool, "fetch_row", answer)
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0)
    run = office.start()
    assert lost
    assert office.started(run) == 1
    found = allowances.read_allowance(allowance)
    assert found is not None
    assert found.used == 1
    assert verify(run).findings == ()


@pytest.mark.slow
def test_a_step_with_a_use_is_written_before_no_message() -> None:
    """The sender of a message is in the origin, so the allowance is looked at again."""
    use = AllowanceUse(id=UUID(int=1), number=1, of=1, by=("bea", "cora"))
    decided = GateDecided(
        gate=UUID(int=2), frame="0", call="c1.0", verdict=Verdict.APPROVE, by="cora", reason=""
    )
    for event in (decided, replace(decided, allowance=use)):
        records = Records()
        records.add(event)
        parts = records.parts(make_initial_state(UUID(int=3)), make_initial_state(UUID(int=3)))
        assert parts["first"] is (event.allowance is not None)
