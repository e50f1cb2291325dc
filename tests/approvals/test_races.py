"""Several at once, on real connections: one decision, one winner, and rights that end while somebody waits."""

import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.utils import timezone

from approvals import actions, audit, tokens
from approvals.errors import AlreadyDecided, NotFound
from approvals.models import AuditEntry, Request, Token
from approvals.permissions import ALL_SCOPES
from approvals.policy import Group
from runtime.models import Gate, Run, Signal
from runtime.ports import Actor
from tests.approvals import seeds

pytestmark = pytest.mark.django_db(transaction=True)

ROUNDS = 50
DECIDERS = 8


def test_of_eight_who_decide_at_once_one_wins_and_the_rest_hear_the_name() -> None:
    people = [seeds.person(f"reviewer-{n}", Group.REVIEWERS) for n in range(DECIDERS)]
    requests = [seeds.pending() for _ in range(ROUNDS)]
    outcomes: list[list[str]] = [[] for _ in requests]
    barrier = threading.Barrier(DECIDERS, timeout=30)

    def play(n: int) -> None:
        for request, heard in zip(requests, outcomes, strict=True):
            verdict, reason = ("approve", "") if n % 2 else ("deny", f"No, says {n}.")
            barrier.wait()
            heard.append(_attempt(request, people[n], verdict, reason))

    _together([partial(play, n) for n in range(DECIDERS)])

    winners = set()
    for request, heard in zip(requests, outcomes, strict=True):
        won = [outcome.removeprefix("won ") for outcome in heard if outcome.startswith("won ")]
        assert len(won) == 1
        assert sorted(heard) == sorted([f"won {won[0]}"] + [f"lost to {won[0]}"] * (DECIDERS - 1))
        _check_one_decision(request, won[0])
        winners.add(won[0])
    assert len(winners) > 1, "the same person won every round: this was no race"


def test_two_clicks_of_one_person_are_one_decision() -> None:
    bea = seeds.person("bea", Group.REVIEWERS)
    request = seeds.pending()
    heard: list[str] = []
    barrier = threading.Barrier(2, timeout=30)

    def click() -> None:
        barrier.wait()
        heard.append(_attempt(request, bea, "approve", ""))

    _together([click, click])
    assert sorted(heard) == ["lost to bea", "won bea"]
    _check_one_decision(request, "bea")


def _disable(bea: User) -> None:
    User.objects.filter(pk=bea.pk).update(is_active=False)


def _take_out_of_group(bea: User) -> None:
    bea.groups.clear()


def _revoke(bea: User) -> None:
    Token.objects.filter(owner=bea).update(revoked_at=timezone.now())


@pytest.mark.parametrize("end", [_disable, _take_out_of_group, _revoke])
def test_rights_that_end_while_a_decision_waits_for_its_turn_are_gone(
    end: Callable[[User], None],
) -> None:
    seeds.person("bea", Group.REVIEWERS)
    owner = User.objects.get(username="bea")
    bea = Actor(person="bea", token=tokens.create(owner, ALL_SCOPES)[0].public_id)
    request = seeds.pending()
    heard: list[str] = []

    waiting = threading.Thread(
        target=_closing(lambda: heard.append(_attempt(request, bea, "approve", "")))
    )
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=request.run_id)
        waiting.start()
        _wait_until_somebody_waits_for_us()
        end(owner)
    waiting.join(30)

    assert heard == ["not found"]
    request.refresh_from_db()
    assert request.status == Request.Status.PENDING
    assert Gate.objects.get(pk=request.gate).state == Gate.State.OPEN
    assert audit.verify(request.run_id) == 1


def test_gates_that_open_while_others_are_decided_keep_one_chain() -> None:
    bea = seeds.person("bea", Group.REVIEWERS)
    of = seeds.run()
    waiting = seeds.opened(*(seeds.picture(of) for _ in range(10)))
    barrier = threading.Barrier(2, timeout=30)

    def review() -> None:
        barrier.wait()
        for request in waiting:
            _attempt(request, bea, "approve", "")

    def go_on() -> None:
        barrier.wait()
        for _ in range(10):
            seeds.opened(seeds.picture(of))

    _together([review, go_on])
    assert audit.verify(of) == 30


def _attempt(request: Request, actor: Actor, verdict: str, reason: str) -> str:
    try:
        actions.decide(
            request=request.id,
            verdict=verdict,
            digest=request.request_digest,
            reason=reason,
            actor=actor,
        )
    except AlreadyDecided as late:
        return f"lost to {late.decided_by}"
    except NotFound:
        return "not found"
    return f"won {actor.person}"


def _check_one_decision(request: Request, winner: str) -> None:
    request.refresh_from_db()
    decided = AuditEntry.objects.filter(run=request.run_id, act__in=["approved", "denied"])
    assert [(row.actor, row.act) for row in decided] == [(winner, request.status)]
    assert request.decided_by == winner
    assert Signal.objects.filter(run=request.run_id).count() == 1
    assert Run.objects.get(pk=request.run_id).mailbox == 1
    assert audit.verify(request.run_id) == 2


def _together(works: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=_closing(work)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def _closing(work: Callable[[], None]) -> Callable[[], None]:
    def done() -> None:
        try:
            work()
        finally:
            connections.close_all()

    return done


def _wait_until_somebody_waits_for_us() -> None:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with connection.cursor() as cursor:
            # pg_locks is read afresh in a transaction, pg_stat_activity is not.
            cursor.execute(
                "SELECT pg_backend_pid() = ANY(pg_blocking_pids(pid)) FROM pg_locks WHERE NOT granted"
            )
            if any(row[0] for row in cursor.fetchall()):
                return
    raise AssertionError("nobody waits")
