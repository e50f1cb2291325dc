"""The same for the keepers' SQL: the tests of our own that see a naive variant of it, on real Postgres."""

import pytest

from runtime.store import pool
from tests.control import test_start
from tests.store import test_leases
from tests.support.engine import MakeBench, rig
from tests.support.fake_ports import say, turns
from tests.upstream import naive

__all__ = ["rig"]


def test_a_let_go_that_does_not_look_at_the_owner_is_seen(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive.owner_is_not_looked_at(monkeypatch)
    desk = rig({"a": turns(say("done"))})
    with pytest.raises(AssertionError):
        test_leases.test_a_replaced_owner_can_neither_release_nor_quarantine(desk)


def test_a_claim_by_whoever_hears_of_the_run_is_seen(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive.whoever_hears_of_it_takes_it(monkeypatch)
    desk = rig({"a": turns(say("done"))})
    with pytest.raises(AssertionError):
        test_leases.test_of_many_claims_at_once_one_succeeds(desk)


def test_a_sweeper_that_trusts_the_broker_is_seen(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive.sweeper_trusts_the_broker(monkeypatch)
    desk = rig({"a": turns(say("done"))})
    with pytest.raises(AssertionError):
        test_leases.test_sweeping_hints_at_what_is_due_once_per_back_off(desk, monkeypatch)


def test_a_gate_that_is_overwritten_is_seen(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive.gate_is_overwritten(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_start.test_a_gate_is_settled_once_and_its_run_is_due_at_once(rig)


def test_a_decision_that_wakes_nobody_is_seen(
    rig: MakeBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    naive.decision_wakes_nobody(monkeypatch)
    with pytest.raises(AssertionError):
        test_start.test_a_gate_is_settled_once_and_its_run_is_due_at_once(rig)


def _no_pool_is_shared_over_a_fork(patch: pytest.MonkeyPatch) -> None:
    """The process finds itself with another id than the one that opened the pool."""
    with pool.pooled():
        before = pool._the_pool()
    patch.setattr(before, "process", -1)
    after = pool._the_pool()
    try:
        assert after is not before
    finally:
        before.close()
        pool.close()


@pytest.mark.usefixtures("transactional_db")
def test_a_forked_process_has_a_pool_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    _no_pool_is_shared_over_a_fork(monkeypatch)


@pytest.mark.usefixtures("transactional_db")
def test_a_pool_that_is_inherited_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pool.pooled():
        naive.pool_is_inherited(monkeypatch)
    with pytest.raises(AssertionError):
        _no_pool_is_shared_over_a_fork(monkeypatch)
