"""An admin, or a program that writes to Postgres, tries to decide alone: by a token, a group or another account."""

import hashlib
import secrets

from django.contrib.auth.models import User
from django.db import connection

from approvals.accounts import people, tokens
from approvals.policy import Group
from runtime.ports.access import Actor
from tests.support.cast import PASSWORD
from tests.support.target import Target, refused

ADMIN = Actor(person="admin")


def test_an_admin_who_becomes_a_reviewer_cannot_decide_yet(target: Target) -> None:
    run = target.start()
    people.set_groups("admin", [Group.ADMINS, Group.REVIEWERS], actor="admin")
    assert refused(run, ADMIN) == "cooling_off"


def test_a_reviewer_of_ones_own_making_does_not_decide(target: Target) -> None:
    run = target.start(requester="admin")
    people.create_person(
        username="puppet", password=PASSWORD, groups=[Group.REVIEWERS], actor="admin"
    )
    assert refused(run, Actor(person="puppet")) == "given_by_origin"


def test_a_membership_by_sql_does_not_decide(target: Target) -> None:
    run = target.start()
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO auth_user_groups (user_id, group_id) SELECT u.id, g.id"
            " FROM auth_user u, auth_group g WHERE u.username = 'admin' AND g.name = 'reviewers'"
        )
    assert refused(run, ADMIN) == "not_eligible"


def test_a_token_by_sql_does_not_decide(target: Target) -> None:
    secret, public_id = secrets.token_hex(32), secrets.token_hex(8)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO approvals_token (public_id, secret_hash, scopes, created_at, owner_id)"
            " VALUES (%s, %s, %s, now(), %s)",
            [
                public_id,
                hashlib.sha256(secret.encode()).hexdigest(),
                '["approvals:decide", "approvals:read"]',
                User.objects.get(username="bea").pk,
            ],
        )
    assert tokens.authenticate(f"aby_{public_id}_{secret}") is None
