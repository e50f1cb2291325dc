"""A decision on real connections, while rights end or other gates open."""

import threading
from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.utils import timezone

from approvals import audit
from approvals.errors import NotFound
from approvals.models import Token
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.core.enums import GateKind
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.threads import in_thread, together, wait_until_blocked

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (GateKind.APPROVAL, lambda bea: User.objects.filter(pk=bea.pk).update(is_active=False)),
        (GateKind.APPROVAL, lambda bea: bea.groups.clear()),
        (GateKind.IN_DOUBT, lambda bea: Token.objects.update(revoked_at=timezone.now())),
    ],
)
def test_a_decision_uses_the_rights_after_its_lock_wait(
    kind: GateKind, end: Callable[[User], object]
) -> None:
    seeds.person("bea", Group.REVIEWERS)
    owner = User.objects.get(username="bea")
    bea = seeds.bearer(Actor(person="bea"), *ALL_SCOPES)
    request = seeds.pending(kind=kind)
    act = seeds.settle if kind is GateKind.IN_DOUBT else seeds.decide
    refused: list[str] = []

    def decide() -> None:
        try:
            act(request, bea)
        except NotFound as error:
            refused.append(error.code)

    with transaction.atomic():
        Run.objects.select_for_update().get(pk=request.run_id)
        waiting = in_thread(decide)
        wait_until_blocked()
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
