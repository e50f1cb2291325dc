"""Tests concurrent decisions on real connections: one winner, and rights that end while a decision waits."""

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from approvals import audit, clock
from approvals.adapter import Approvals
from approvals.errors import AlreadyDecided, Cancelled, Expired, NotFound
from approvals.models import AuditEntry, Request, Token
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.control.cancel import cancel
from runtime.core.enums import Decision, Verdict
from runtime.models import Gate, Run, Signal
from runtime.ports.access import Actor
from runtime.store.tables.signals import GATE_DECIDED
from tests.support import seeds
from tests.support.threads import closing, together

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 200
TIME = 3  # the place of time among the four kinds of racers


def test_concurrent_actions_of_all_kinds_have_one_winner() -> None:
    people = [seeds.person(f"reviewer-{n}", Group.REVIEWERS) for n in range(4)]
    seeds.person("cyril", Group.REQUESTERS)
    seeds.person("admin", Group.ADMINS)
    requests: list[Request] = []
    heard: list[list[str]] = []
    spread = random.Random(3)

    def new_round() -> None:
        """Set a deadline during the race, in every fourth round before it: expiry would rarely win otherwise."""
        soon = -1 if len(requests) % 4 == TIME else spread.uniform(5, 120)
        due = clock.now() + timedelta(milliseconds=soon)
        requests.append(seeds.pending(requester="cyril", expires_at=due))
        heard.append([])

    barrier = threading.Barrier(8, timeout=30, action=new_round)
    racers: list[Callable[[Request], str]] = [
        partial(_attempt, actor=people[0], verdict="approve", reason=""),
        partial(_attempt, actor=people[1], verdict="approve", reason=""),
        partial(_attempt, actor=people[2], verdict="deny", reason="No, says 2."),
        partial(_attempt, actor=people[3], verdict="deny", reason="No, says 3."),
        partial(_cancel, by="cyril"),
        partial(_cancel, by="admin"),
        _expire,
        _expire,
    ]

    def play(n: int) -> None:
        chance = random.Random(n)
        for number in range(ROUNDS):
            barrier.wait()
            # Each kind starts first in its turn: otherwise the kind that reads least would always win.
            if number % 4 != n // 2:
                time.sleep(chance.uniform(0, 0.03))
            heard[-1].append(racers[n](requests[-1]))
            barrier_end.wait()

    barrier_end = threading.Barrier(8, timeout=30)
    together([partial(play, n) for n in range(8)])

    ends = Counter(_check_one_end(*one) for one in zip(requests, heard, strict=True))
    assert sum(ends.values()) == ROUNDS
    assert set(ends) == {"approved", "denied", "cancelled", "expired"}, "one kind never won"


@pytest.mark.parametrize(
    "end",
    [
        lambda bea: User.objects.filter(pk=bea.pk).update(is_active=False),
        lambda bea: bea.groups.clear(),
        lambda bea: Token.objects.filter(owner=bea).update(revoked_at=timezone.now()),
    ],
)
def test_a_decision_uses_the_rights_after_its_lock_wait(end: Callable[[User], object]) -> None:
    seeds.person("bea", Group.REVIEWERS)
    owner = User.objects.get(username="bea")
    bea = seeds.bearer(Actor(person="bea"), *ALL_SCOPES)
    request = seeds.pending()
    heard: list[str] = []

    waiting = threading.Thread(
        target=closing(lambda: heard.append(_attempt(request, bea, "approve", "")))
    )
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=request.run_id)
        waiting.start()
        _wait_until_another_waits_for_us(waiting)
        end(owner)
    waiting.join(30)

    assert heard == ["not found"]
    assert seeds.untouched(request)


def test_gates_that_open_while_others_are_decided_keep_one_chain() -> None:
    bea = seeds.person("bea", Group.REVIEWERS)
    of = seeds.run()
    waiting = seeds.opened(*(seeds.snapshot(of) for _ in range(10)))
    barrier = threading.Barrier(2, timeout=30)

    def review() -> None:
        barrier.wait()
        for request in waiting:
            _attempt(request, bea, "approve", "")

    def go_on() -> None:
        barrier.wait()
        for _ in range(10):
            seeds.opened(seeds.snapshot(of))

    together([review, go_on])
    assert audit.verify(of) == 30


def _attempt(request: Request, actor: Actor, verdict: str, reason: str) -> str:
    """Decide and return the result the actor sees."""
    try:
        seeds.decide(request, actor, verdict, reason)
    except AlreadyDecided as late:
        return f"lost to {late.decided_by}"
    except Cancelled as late:
        return f"lost to the cancelling by {late.cancelled_by}"
    except Expired:
        return "lost to time"
    except NotFound:
        return "not found"
    return f"won {actor.person}"


def _cancel(request: Request, *, by: str) -> str:
    cancel(run=request.run_id, actor=Actor(person=by), reason="Not needed.")
    return f"cancelled by {by}"


def _expire(request: Request) -> str:
    Approvals().expire(request.gate)
    return "time was asked"


def _check_one_end(request: Request, heard: list[str]) -> str:
    """Check that request, gate, audit and signals agree on one outcome, and that each losing person was told it."""
    request.refresh_from_db()
    status, by = request.status, request.decided_by
    ended = AuditEntry.objects.filter(subject=f"request {request.id}").exclude(act="requested")
    assert [(row.act, row.actor) for row in ended] == [(status, by)]
    gate = Gate.objects.get(pk=request.gate)
    assert gate.state == ("closed" if status == "cancelled" else "decided")
    decisions = [
        json.loads(one.body) for one in Signal.objects.filter(run=request.run_id, kind=GATE_DECIDED)
    ]
    verdicts = {"approved": ["approve"], "denied": ["deny"], "expired": ["expire"], "cancelled": []}
    assert [one["verdict"] for one in decisions] == verdicts[status]
    assert [one["by"] for one in decisions] == ([] if status == "cancelled" else [by or ""])
    lost_to = {"cancelled": f"the cancelling by {by}", "expired": "time"}.get(status, str(by))
    people = [one for one in heard if one.startswith(("won", "lost"))]
    won = [f"won {by}"] if status in ("approved", "denied") else []
    assert sorted(people) == sorted(won + [f"lost to {lost_to}"] * (4 - len(won)))
    runs = AuditEntry.objects.filter(subject=f"run {request.run_id}")
    assert [row.act for row in runs] == ["cancelled"]  # once, although two people cancelled
    assert runs[0].actor in ("cyril", "admin")
    audit.verify(request.run_id)
    for one in decisions:
        decision = Decision(verdict=Verdict(one["verdict"]), by=one["by"], reason=one["reason"])
        Approvals().verify_decision(gate=request.gate, decision=decision)
    return status


def _wait_until_another_waits_for_us(waiting: threading.Thread) -> None:
    deadline = time.monotonic() + 60
    while waiting.is_alive() and time.monotonic() < deadline:
        with connection.cursor() as cursor:
            # pg_locks is read afresh in a transaction, pg_stat_activity is not.
            cursor.execute(
                "SELECT pg_backend_pid() = ANY(pg_blocking_pids(pid)) FROM pg_locks WHERE NOT granted"
            )
            if any(row[0] for row in cursor.fetchall()):
                return
    raise AssertionError("no other connection waits")
