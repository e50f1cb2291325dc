"""Ways to decide on what one started: by a fork, by a message, by an event."""

from uuid import UUID

import pytest
from django.db import transaction

from approvals.actions import decide
from approvals.models import Request
from runtime import actions, engine
from runtime.models import Run
from runtime.ports import Actor, Forbidden
from tests.attacks.conftest import Target

ADA, BEA, ADMIN = Actor(person="ada"), Actor(person="bea"), Actor(person="admin")


def pending(run: UUID) -> Request:
    return Request.objects.get(run=run, status="pending")


def approve(run: UUID, actor: Actor) -> None:
    asked = pending(run)
    decide(
        request=asked.id,
        verdict="approve",
        digest=asked.request_digest,
        reason="ok",
        actor=actor,
    )


def write(run: UUID, actor: Actor) -> None:
    with transaction.atomic():
        engine.write(run=run, actor=actor, text="use level 5")


def refused(run: UUID, actor: Actor) -> str:
    with pytest.raises(Forbidden) as caught:
        approve(run, actor)
    return caught.value.code


def test_a_fork_by_another_does_not_make_it_theirs_alone(target: Target) -> None:
    run = target.start()
    new = actions.fork(run=run, position=Run.objects.get(id=run).position, actor=ADMIN)
    assert target.advance(new).requester == "admin"
    assert refused(new, ADA) == "origin"
    approve(new, BEA)
    assert target.advance(new).status == "completed"


def test_a_fork_comes_from_who_wrote_to_the_original(target: Target) -> None:
    run = target.start()
    position = Run.objects.get(id=run).position
    write(run, BEA)  # after the entry that is forked, and not taken up
    new = actions.fork(run=run, position=position, actor=ADMIN)
    target.advance(new)
    assert refused(new, BEA) == "origin"


def test_who_wrote_to_a_run_does_not_decide_in_it(target: Target) -> None:
    run = target.start()
    write(run, BEA)
    assert refused(run, BEA) == "origin"
    target.advance(run)
    assert refused(run, BEA) == "origin"


def test_a_message_after_approving_voids_the_approval(target: Target) -> None:
    run = target.start()
    approve(run, BEA)
    write(run, BEA)
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0
    assert refused(run, BEA) == "origin"


def test_rows_without_the_origin_hide_no_message(target: Target) -> None:
    """Whoever writes rows takes Bea out of the copies: the journal still says that she wrote."""
    run = target.start()
    write(run, BEA)
    target.advance(run)
    Request.objects.filter(run=run).update(excluded=["ada"])  # as it was sealed
    Run.objects.filter(id=run).update(origin=[])
    approve(run, BEA)
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0
