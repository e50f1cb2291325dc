"""A person decides on their own run by a fork, a message or an event; an admin by a token, a group or an account."""

import hashlib
import secrets
from uuid import UUID

from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.utils import timezone

from approvals.models import Approval, Token
from approvals.people import tokens
from approvals.people.accounts import set_groups
from approvals.rules.policy import Group
from runtime.control.forks import fork
from runtime.control.interventions import send_message
from runtime.models import Run
from runtime.ports.access import Actor
from tests.support.office import Target, approve, refused

ADA, BEA, ADMIN = Actor(person="ada"), Actor(person="bea"), Actor(person="admin")


def write(run: UUID) -> None:
    """Send a message as Bea, who must be an admin to write to Ada's runs."""
    set_groups("bea", (Group.REVIEWERS, Group.ADMINS), actor=None)
    send_message(run=run, actor=BEA, text="use level 5")


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
    write(run)  # after the entry that is forked; no worker has received it
    new = fork(run=run, position=position, actor=ADMIN)
    target.advance(new)
    assert refused(new, BEA) == "origin"


def test_a_sender_of_a_message_does_not_decide_in_the_run(target: Target) -> None:
    run = target.start()
    write(run)
    assert refused(run, BEA) == "origin"
    target.advance(run)
    assert refused(run, BEA) == "origin"


def test_a_message_after_approving_voids_the_approval(target: Target) -> None:
    set_groups("bea", (Group.REVIEWERS, Group.ADMINS), actor=None)  # so that she keeps them below
    run = target.start()
    approve(run, BEA)
    write(run)
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0
    assert refused(run, BEA) == "origin"


def test_rows_without_the_origin_hide_no_message(target: Target) -> None:
    """The copies in rows lose Bea, but the journal still names her."""
    run = target.start()
    write(run)
    target.advance(run)
    Approval.objects.filter(run=run).update(excluded=["ada"])  # as it was sealed
    Run.objects.filter(id=run).update(origin=[])
    approve(run, BEA)
    assert target.advance(run).status == "suspended"
    assert target.started(run) == 0


def test_a_membership_by_sql_does_not_decide(target: Target) -> None:
    run = target.start()
    admin = User.objects.get(username="admin")
    admin.groups.add(GroupRow.objects.get(name=Group.REVIEWERS))
    assert refused(run, ADMIN) == "not_eligible"


def test_a_token_by_sql_does_not_decide(target: Target) -> None:
    secret, public_id = secrets.token_hex(32), secrets.token_hex(8)
    Token.objects.create(
        public_id=public_id,
        secret_hash=hashlib.sha256(secret.encode()).hexdigest(),
        scopes=["approvals:decide", "approvals:read"],
        owner=User.objects.get(username="bea"),
        created_at=timezone.now(),
    )
    assert tokens.authenticate(f"sgn_{public_id}_{secret}") is None
