"""People provision the instances of agents outside; each has a credential that is good for its requests alone."""

from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.db import DatabaseError, transaction
from django.test import Client

from approvals.models import Instance
from approvals.people import tokens
from approvals.people.accounts import set_groups
from approvals.people.instances import authenticate
from approvals.rights.principals import ALL_SCOPES
from approvals.rules.policy import Group
from tests.support.seeds import Cast
from tests.support.threads import together
from tests.web.aap.conftest import BODY, Desk, Door, code


def test_an_instance_is_made_read_renamed_and_deleted(provisioner: Door) -> None:
    made = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, "k")
    assert made.status_code == 201
    instance = made.json()["instance"]
    path = f"/instances/{instance['id']}"
    again = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, "k")
    assert (again.status_code, again.json()) == (200, made.json())
    conflict = provisioner.send("POST", "/instances", {"instance_name": "Other"}, "k")
    assert code(conflict) == (409, "idempotency_conflict")
    assert provisioner.send("GET", path).json() == {"instance": instance}
    renamed = provisioner.send("PATCH", path, {"instance_name": "New"}, "p")
    assert renamed.json()["instance"]["name"] == "New"
    provisioner.send("PATCH", path, {"instance_name": "Newer"}, "q")
    repeated = provisioner.send("PATCH", path, {"instance_name": "New"}, "p")
    assert repeated.json() == renamed.json()  # the first answer, and nothing changed
    assert provisioner.send("GET", path).json()["instance"]["name"] == "Newer"
    assert code(provisioner.send("PATCH", path, {}, "r")) == (400, "missing_field")
    assert provisioner.send("DELETE", path).status_code == 204
    assert provisioner.send("DELETE", path).status_code == 204
    for method, body in (("GET", None), ("PATCH", {"instance_name": "X"})):
        assert code(provisioner.send(method, path, body, "s")) == (404, "not_found")
    gone = provisioner.send("POST", "/instances", {"instance_name": "Bot"}, "k")
    assert code(gone) == (409, "instance_deleted")
    assert code(Door(made.json()["credential"]["token"]).send("GET", "/requests/x"))[0] == 401


def test_two_provisionings_with_one_key_make_one_instance(provisioner: Door) -> None:
    answers: list[Any] = []
    together([lambda: answers.append(provisioner.send("POST", "/instances", {}, "k"))] * 4)
    assert sorted(answer.status_code for answer in answers) == [200, 200, 200, 201]
    assert len({answer.json()["credential"]["token"] for answer in answers}) == 1


def test_asking_and_deleting_at_once_leaves_nothing_that_waits(
    provisioner: Door, bot: Door, desk: Desk
) -> None:
    path = f"/instances/{Instance.objects.get().id}"
    answers: list[Any] = []

    def ask() -> None:
        answers.append(bot.send("POST", "/requests", {**BODY}, str(uuid4())))

    together([ask, ask, lambda: provisioner.send("DELETE", path), ask])
    for answer in answers:
        if answer.status_code == 201:
            assert desk.advance(answer.json()["id"]) == "cancelled"


def test_instances_of_another_person_are_not_there(provisioner: Door, bot: Door) -> None:
    other = User.objects.get(username="bea")
    set_groups("bea", [Group.ADMINS], actor=None)
    _, token = tokens.create(other, ALL_SCOPES)
    path = f"/instances/{Instance.objects.get().id}"
    for method in ("GET", "DELETE"):
        assert code(Door(token).send(method, path)) == (404, "not_found")


def test_a_token_without_the_right_manages_nothing(bot: Door, cast: Cast) -> None:
    for owner, scopes in ((cast.ada, ALL_SCOPES), (cast.admin, ALL_SCOPES - {"instances:manage"})):
        _, token = tokens.create(owner, scopes)
        refused = Door(token).send("POST", "/instances", {}, "k")
        assert code(refused) == (403, "forbidden")
    assert Instance.objects.count() == 1


def test_a_session_is_nothing_here(admin: Client) -> None:
    answer = admin.post("/api/aap/v1/instances", {}, content_type="application/json")
    assert code(answer) == (401, "invalid_credential")


def test_a_disabled_owner_ends_the_credential(bot: Door) -> None:
    User.objects.filter(username="admin").update(is_active=False)
    assert code(bot.send("POST", "/requests", BODY, "k")) == (401, "invalid_credential")


def test_an_owner_who_may_not_start_runs_asks_for_nothing(bot: Door) -> None:
    set_groups("bea", [Group.ADMINS], actor=None)
    set_groups("admin", [], actor=None)
    assert code(bot.send("POST", "/requests", BODY, "k")) == (403, "forbidden")


def test_a_row_that_nobody_signed_is_no_instance(bot: Door) -> None:
    credential = bot.client.defaults["HTTP_AUTHORIZATION"].removeprefix("Bearer ")
    instance = authenticate(credential)
    assert instance is not None
    assert credential.encode() not in str(instance.sealed).encode()
    with pytest.raises(DatabaseError), transaction.atomic():
        Instance.objects.update(secret_hash="0" * 64)
    Instance.objects.update(signature="00" * 64)
    assert authenticate(credential) is None
