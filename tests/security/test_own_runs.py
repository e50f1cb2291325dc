"""A person tries to decide on their own run: by a fork, a message or an event."""

from uuid import UUID

import pytest

from approvals.accounts.people import set_groups
from approvals.models import Request
from approvals.policy import Group
from runtime.control.fork import fork
from runtime.control.messages import send_message
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support.target import Target, approve, refused

ADA, BEA, ADMIN = Actor(person="ada"), Actor(person="bea"), Actor(person="admin")


@pytest.fixture(autouse=True)
def bea_is_an_admin(target: Target) -> None:
    """Else she could not write to Ada's runs."""
    set_groups("bea", (Group.REVIEWERS, Group.ADMINS), actor=None)


def write(run: UUID, actor: Actor) -> None:
    send_message(run=run, actor=actor, text="use level 5")


def test_a_fork_by_another_keeps_the_origin(target: Target) -> None:
    run = target.start()
    new = fork(run=run, position=Run.objects.get(id=run).position, actor=ADMIN)
    assert target.advance(new).requester == "admin"
    assert refused(new, ADA) == "origin"
    approve(new, BEA)
    assert target.advance(new).status == "completed"


def test_a_fork_comes_from_who_wrote_to_the_original(target: Target) -> None:
    run = target.start()
    position = Run.objects.get(id=run).position
    write(run, BEA)  # after the entry that is forked; no worker has received it
    new = fork(run=run, position=position, actor=ADMIN)
    target.advance(new)
    assert refused(new, BEA) == "origin"


def test_a_sender_of_a_message_does_not_decide_in_the_run(target: Target) -> None:
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
    """The copies in rows lose Bea, but the journal still names her."""
    run = target.start()
    write(run, BEA)
    target.advance(run)
    Request.objects.filter(run=run).update(excluded=["ada"])  # as it was sealed
    Run.objects.filter(id=run).update(origin=[])
    approve(run, BEA)
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0
