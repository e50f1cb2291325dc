"""A decision on real connections, while rights end or other gates open."""

import threading
import time
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from approvals import audit
from approvals.errors import NotFound
from approvals.models import Token
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.threads import closing, together

pytestmark = pytest.mark.django_db(transaction=True)


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
    refused: list[str] = []

    def decide() -> None:
        try:
            seeds.decide(request, bea)
        except NotFound as error:
            refused.append(error.code)

    waiting = threading.Thread(target=closing(decide))
    with transaction.atomic():
        Run.objects.select_for_update().get(pk=request.run_id)
        waiting.start()
        _wait_until_another_waits_for_us(waiting)
        end(owner)
    waiting.join(30)

    assert refused == ["not_found"]
    assert seeds.untouched(request)


def test_gates_that_open_while_others_are_decided_keep_one_chain() -> None:
    bea = seeds.person("bea", Group.REVIEWERS)
    of = seeds.run()
    waiting = seeds.opened(*(seeds.snapshot(of) for _ in range(10)))
    barrier = threading.Barrier(2, timeout=30)

    def review() -> None:
        barrier.wait()
        for request in waiting:
            seeds.decide(request, bea)

    def go_on() -> None:
        barrier.wait()
        for _ in range(10):
            seeds.opened(seeds.snapshot(of))

    together([review, go_on])
    assert audit.verify(of) == 30


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
