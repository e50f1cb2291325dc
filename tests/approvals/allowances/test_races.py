"""Workers take the uses of one allowance at once: each is taken once, and a revocation stops the next."""

from collections import Counter
from dataclasses import replace
from functools import partial
from threading import Barrier
from typing import Any
from uuid import UUID

import psycopg
import pytest

from approvals.governance import allowance_changes, allowances
from approvals.models import AllowanceAct, Approval
from runtime.control.verification import verify
from runtime.core.run.events import AllowanceUse, GateDecided
from runtime.core.run.reducer import initial
from runtime.core.values.enums import Verdict
from runtime.execution import worker
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.store.steps import Records, record_event
from tests.approvals.allowances.office import in_force, reviewers
from tests.support.office import Office
from tests.support.threads import together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

WORKERS, COUNT = 20, 10


def runs_of(office: Office, count: int) -> list[UUID]:
    return [office.start(requester="dan", advanced=False) for _ in range(count)]


def statuses(runs: list[UUID]) -> Counter[str]:
    return Counter(Approval.objects.filter(run__in=runs).values_list("status", flat=True))


def advance(office: Office, run: UUID, ready: Barrier) -> None:
    ready.wait()
    office.advance(run)


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


def test_a_commit_whose_answer_is_lost_takes_one_use(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    reviewers("cora", "dan")
    allowance = in_force(office.request(office.start()), count=2)
    lost, row = list[str](), pool.row

    def answer(connection: Connection, statement: str, *given: Any, **more: Any) -> Any:
        found = row(connection, statement, *given, **more)
        if "INTO approvals_allowanceact" in statement and not lost:
            lost.append(statement)
            raise psycopg.OperationalError("the connection is lost")
        return found

    monkeypatch.setattr(pool, "row", answer)
    monkeypatch.setattr(worker, "RETRY_SECONDS", 0)
    run = office.start()
    assert lost
    assert office.started(run) == 1
    found = allowances.read_allowance(allowance)
    assert found is not None
    assert found.used == 1
    assert verify(run).findings == ()


def test_a_step_with_a_use_is_written_before_no_message() -> None:
    """The sender of a message is in the origin, so the allowance is looked at again."""
    use = AllowanceUse(id=UUID(int=1), number=1, of=1, by=("bea", "cora"))
    decided = GateDecided(
        gate=UUID(int=2), frame="0", call="c1.0", verdict=Verdict.APPROVE, by="cora", reason=""
    )
    for event in (decided, replace(decided, allowance=use)):
        records = Records()
        records.add(record_event(event))
        parts = records.parts(initial(UUID(int=3)), initial(UUID(int=3)))
        assert parts["first"] is (event.allowance is not None)
