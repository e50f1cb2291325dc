"""Two people act on one request at once, on real connections: it is decided once, and the worker agrees."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial
from threading import Barrier, Event

import pytest

from approvals import clock
from approvals.decisions.decide import undo
from approvals.errors import ApprovalError
from approvals.models import Approval, AuditEntry, Vote
from approvals.port.adapter import ApprovalService
from approvals.signed import audit
from runtime.errors import RunEnded
from runtime.models import Gate, Signal
from runtime.ports.access import Actor
from runtime.store.tables.signals import GATE_DECIDED
from tests.approvals.policies.office import TWO, put_in_force, reviewers
from tests.support import seeds
from tests.support.threads import together

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

ROUNDS = 8
BEA, CORA, DAN = (Actor(person=name) for name in ("bea", "cora", "dan"))
Act = Callable[[Approval], object]


def expire(approval: Approval) -> None:
    ApprovalService().expire(approval.gate)


def withdraw(approval: Approval) -> None:
    undo(approval_id=approval.id, actor=BEA)


def vote(approval: Approval, actor: Actor) -> None:
    seeds.decide(approval, actor)


def deny(approval: Approval) -> None:
    seeds.decide(approval, DAN, "deny", "No.")


by_cora, by_dan = partial(vote, actor=CORA), partial(vote, actor=DAN)

# The two acts, who has voted before, and how it may end: status, live votes
CASES: dict[str, tuple[Act, Act, list[Actor], set[tuple[str, int]]]] = {
    "the last vote twice": (by_cora, by_dan, [BEA], {("approved", 2)}),
    "both needed": (by_cora, by_dan, [], {("approved", 2)}),
    "one person twice": (by_cora, by_cora, [], {("pending", 1)}),
    "vote and expiry": (by_cora, expire, [BEA], {("approved", 2), ("expired", 1), ("expired", 0)}),
    "vote and withdrawal": (by_cora, withdraw, [BEA], {("approved", 2), ("pending", 1)}),
    "vote and denial": (by_cora, deny, [BEA], {("approved", 2), ("denied", 1)}),
}


@pytest.mark.parametrize("case", CASES)
def test_two_at_once_end_as_if_in_turn(case: str) -> None:
    one, other, before, allowed = CASES[case]
    reviewers("bea", "cora", "dan")
    put_in_force(TWO)
    for _ in range(ROUNDS):
        due = clock.read_time() + timedelta(milliseconds=40) if other is expire else None
        approval = seeds.pending(expires_at=due)
        for actor in before:
            _try(partial(seeds.decide, approval, actor))
        _wait_until_due(approval)
        _at_once(approval, one, other)
        _check(approval, allowed)


def _at_once(approval: Approval, *acts: Act) -> None:
    ready = Barrier(2, timeout=60)

    def play(act: Act) -> None:
        ready.wait()
        _try(lambda: act(approval))

    together([partial(play, act) for act in acts], within=60)


STEP = """
rules: [{name: One, people: [bea], escalate: [{people: [cora], expires_after: 60}]}]
"""


def look_ahead(approval: Approval) -> None:
    ApprovalService().look_ahead(Event())


@pytest.mark.parametrize("other", [look_ahead, by_cora], ids=["another sweeper", "a vote"])
def test_a_step_is_recorded_once_beside_another_act(other: Act) -> None:
    reviewers("bea", "cora")
    put_in_force(STEP)
    for _ in range(ROUNDS):
        approval = seeds.pending(expires_at=clock.read_time() + timedelta(seconds=30))
        _at_once(approval, look_ahead, other)
        rows = AuditEntry.objects.filter(run=approval.run_id, act="escalated")
        if other is look_ahead:
            assert rows.count() == 1
            _check(approval, {("pending", 0)})
        else:
            assert rows.count() <= 1
            _check(approval, {("approved", 1)})


def _try(act: Callable[[], object]) -> None:
    try:
        act()
    except (ApprovalError, RunEnded):
        pass


def _wait_until_due(approval: Approval) -> None:
    """Let only the last milliseconds before the deadline be left."""
    while approval.expires_at and clock.read_time() < approval.expires_at - timedelta(
        milliseconds=4
    ):
        pass


def _check(approval: Approval, allowed: set[tuple[str, int]]) -> None:
    approval.refresh_from_db()
    live = set(Vote.objects.filter(approval=approval).values_list("person", flat=True))
    assert set(approval.voted) == live
    assert (approval.status, len(live)) in allowed
    decided = Signal.objects.filter(run=approval.run_id, kind=GATE_DECIDED).count()
    assert decided == (approval.status != "pending")
    assert (Gate.objects.get(pk=approval.gate).state == Gate.State.OPEN) is not bool(decided)
    acts = AuditEntry.objects.filter(run=approval.run_id, act=approval.status)
    assert acts.count() == (1 if decided else 0)
    audit.verify(approval.run_id)
    if approval.status == "approved":
        seeds.verify_decision(approval)
