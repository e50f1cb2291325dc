"""A directory creates, changes and disables its own people, and no others; hostile requests change nothing."""

import json
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from approvals.models import Assignment, DirectoryEntry
from approvals.people import accounts, directories, tokens
from approvals.rights import assignments, principals
from approvals.rules.policy import Group
from runtime.ports.access import Actor
from tests.support.api_client import Caller
from tests.support.commands import tried
from tests.support.pages import has, log_in, text_of
from tests.support.seeds import Cast
from tests.web.scim.provisioner import TYPE, ZOE, Provisioner

pytestmark = pytest.mark.django_db


def test_a_person_comes_without_a_password_and_names_the_directory(acme: Provisioner) -> None:
    created = acme.create()
    zoe = User.objects.get(username=ZOE["userName"])
    assert (zoe.first_name, zoe.email, zoe.is_active) == ("Zoe Novak", zoe.username, True)
    assert not zoe.has_usable_password()
    givers = {tuple(row.givers) for row in Assignment.objects.filter(person=zoe)}
    assert givers == {("directory acme",)}
    principal = principals.find_principal(Actor(person=zoe.username))
    assert principal is not None
    assert principal.groups == frozenset()
    page = acme.send("GET", '/Users?filter=userName eq "ZOE@acme.example"')
    assert [row["id"] for row in page["Resources"]] == [created["id"]]
    assert acme.send("GET", '/Users?filter=externalId eq "00u1"')["totalResults"] == 1
    assert acme.send("GET", '/Users?filter=externalId eq "00U1"')["totalResults"] == 0


def test_a_change_of_an_older_version_is_refused(acme: Provisioner) -> None:
    created = acme.create()
    acme.client.defaults["HTTP_IF_MATCH"] = created["meta"]["version"]
    path, changed = f"/Users/{created['id']}", {**ZOE, "displayName": "Zoe"}
    assert acme.send("PUT", path, changed)["meta"]["version"] != created["meta"]["version"]
    acme.send("PUT", path, ZOE, status=412)
    acme.patch(path, {"op": "replace", "path": "active", "value": False}, status=412)
    acme.send("DELETE", path, status=412)


def test_a_second_admin_sees_who_made_the_token(cast: Cast) -> None:
    Provisioner(by="admin").create()
    assert {"admin", "directory acme"} <= assignments.list_hands(str(ZOE["userName"]))


def test_deactivation_ends_sessions_and_tokens_at_once(acme: Provisioner) -> None:
    path = f"/Users/{acme.create()['id']}"
    zoe = User.objects.get(username=ZOE["userName"])
    browser, (_, token) = log_in(zoe), tokens.create(zoe, ["runs:read"])
    assert browser.get("/account/").status_code == 200
    acme.patch(path, {"op": "Replace", "path": "active", "value": False})
    assert browser.get("/account/").status_code == 302
    assert principals.find_principal(Actor(person=zoe.username, token=token.split("_")[1])) is None
    acme.patch(path, {"op": "replace", "value": {"active": True}})
    assert User.objects.filter(pk=zoe.pk, is_active=True).exists()
    assert browser.get("/account/").status_code == 302
    assert tokens.authenticate(token) is None
    acme.send("DELETE", path, status=204)
    assert User.objects.filter(pk=zoe.pk, is_active=False).exists()
    acme.send("GET", path, status=404)
    acme.create(status=409)  # a name is given once


@pytest.mark.parametrize("is_deleted", [False, True])
def test_only_a_directory_enables_whom_it_disabled(
    acme: Provisioner, admin: Client, is_deleted: bool
) -> None:
    path, name = f"/Users/{acme.create()['id']}", str(ZOE["userName"])
    admin.post(f"/people/{name}/disable/")
    admin.post(f"/people/{name}/enable/")
    if is_deleted:
        acme.send("DELETE", path, status=204)
    else:
        acme.patch(path, {"op": "replace", "path": "active", "value": False})
    page = admin.post(f"/people/{name}/enable/")
    has(text_of(page, 403), "The directory acme disabled")
    assert not User.objects.get(username=name).is_active
    directories.revoke_token(acme.token.split("_")[1], actor=None)
    admin.post(f"/people/{name}/enable/")
    assert User.objects.get(username=name).is_active


def test_a_directory_does_not_enable_whom_an_admin_disabled(
    acme: Provisioner, admin: Client
) -> None:
    path, name = f"/Users/{acme.create(active=True)['id']}", str(ZOE["userName"])

    def is_active() -> bool:
        return User.objects.get(username=name).is_active

    admin.post(f"/people/{name}/disable/")
    acme.patch(path, {"op": "replace", "path": "displayName", "value": "Zoe"})
    assert acme.send("GET", path)["active"] is False
    for body in (ZOE, {**ZOE, "active": True}):
        acme.send("PUT", path, body)
        assert not is_active()
    admin.post(f"/people/{name}/enable/")
    assert is_active()
    acme.patch(path, {"op": "replace", "path": "active", "value": False})
    acme.send("PUT", path, {**ZOE, "active": True})
    assert is_active()
    # Both have disabled her, and both must enable her.
    admin.post(f"/people/{name}/disable/")
    acme.patch(path, {"op": "replace", "path": "active", "value": False})
    assert admin.post(f"/people/{name}/enable/").status_code == 403
    acme.patch(path, {"op": "replace", "path": "active", "value": True})
    assert not is_active()
    admin.post(f"/people/{name}/enable/")
    assert is_active()


def test_an_account_that_was_there_is_not_taken(acme: Provisioner, cast: Cast) -> None:
    User.objects.filter(username="bea").update(email="bea@acme.example")
    refused = acme.create(userName="BEA", status=409)
    assert refused["scimType"] == "uniqueness"
    acme.create(emails=[{"value": "bea@acme.example"}])
    cast.bea.refresh_from_db()
    assert cast.bea.is_active
    assert not DirectoryEntry.objects.filter(person=cast.bea).exists()


def test_the_command_line_lets_a_directory_take_an_account(acme: Provisioner, cast: Cast) -> None:
    name = str(ZOE["userName"])
    assert tried("directories", "adopt", "acme", "bea", name)[1] == ""
    for wrong in (("acme", "bea", "other"), ("acme", "ada", name.upper()), ("none", "ada", "ada")):
        assert tried("directories", "adopt", *wrong)[1].startswith(
            ("person belongs", "directory has")
        )
    acme.create(status=409)
    [row] = acme.send("GET", f'/Users?filter=userName eq "{name}"')["Resources"]
    person = f"/Users/{row['id']}"
    acme.send("PUT", person, {**ZOE, "active": False})
    cast.bea.refresh_from_db()
    assert (cast.bea.first_name, cast.bea.is_active) == ("Zoe Novak", False)
    acme.patch(person, {"op": "replace", "path": "active", "value": True})
    cast.bea.refresh_from_db()
    assert cast.bea.is_active
    acme.send("DELETE", person, status=204)
    acme.send("DELETE", f"/Users/{acme.create()['id']}", status=204)  # the name is free again


def test_a_directory_does_not_see_what_another_one_made(acme: Provisioner) -> None:
    path = f"/Users/{acme.create()['id']}"
    other = Provisioner("other")
    other.send("GET", path, status=404)
    other.send("DELETE", path, status=404)
    other.patch(path, {"op": "replace", "path": "active", "value": False}, status=404)
    other.group("Staff", path.removeprefix("/Users/"), status=400)
    assert other.send("GET", "/Users")["totalResults"] == 0


@pytest.mark.parametrize("scheme", ["Bearer {}", "bearer {}x", "Basic {}", "{}", ""])
def test_each_token_is_good_for_its_own_place(acme: Provisioner, cast: Cast, scheme: str) -> None:
    browser = log_in(cast.admin)
    _, api = tokens.create(cast.admin, ["admin"])
    for client in (Client(), browser):
        header = scheme.format(api)
        answer = client.get("/scim/v2/Users", headers={"authorization": header})
        assert answer.status_code == 401
        assert answer["WWW-Authenticate"].startswith("Bearer")
        assert answer["Content-Type"] == TYPE
    header = scheme.format(acme.token)
    assert Client().get("/api/v1/runs", headers={"authorization": header}).status_code == 401
    assert Caller(cast.admin).get("/runs").status_code == 200


def test_a_token_ends(acme: Provisioner) -> None:
    acme.send("GET", "/Users")
    token = acme.token.split("_")[1]
    directories.revoke_token(token, actor=None)
    acme.send("GET", "/Users", status=401)
    late = Provisioner("late")
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE approvals_directorytoken DISABLE TRIGGER USER")
        cursor.execute(
            "UPDATE approvals_directorytoken SET expires_at = expires_at + interval '9 days'"
        )
    late.send("GET", "/Users", status=401)  # the row does not verify


def test_a_row_of_another_program_is_no_entry(acme: Provisioner, cast: Cast) -> None:
    created = acme.create()
    DirectoryEntry.objects.update(person=cast.bea)
    acme.send("GET", f"/Users/{created['id']}", status=404)
    acme.send("DELETE", f"/Users/{created['id']}", status=404)
    assert acme.send("GET", "/Users").get("Resources", []) == []
    cast.bea.refresh_from_db()
    assert cast.bea.is_active


def test_fields_that_give_rights_elsewhere_are_ignored(acme: Provisioner) -> None:
    created = acme.create(
        roles=[{"value": "admins"}],
        isSuperuser=True,
        is_staff=True,
        groups=[{"value": "admins"}],
        password="chosen by the directory",
        entitlements=[{"value": "admins"}],
    )
    path = f"/Users/{created['id']}"
    acme.patch(path, {"op": "add", "value": {"isSuperuser": True, "roles": [{"value": "admins"}]}})
    zoe = User.objects.get(username=ZOE["userName"])
    assert (zoe.is_superuser, zoe.is_staff) == (False, False)
    assert not zoe.has_usable_password()
    assert zoe.groups.count() == 0
    assert not set(created) & {"roles", "isSuperuser", "password", "entitlements", "groups"}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("userName", "admin"),
        ("id", "00000000-0000-0000-0000-000000000000"),
        ("groups", [{"value": "admins"}]),
        ('emails[type eq "work" and (value pr', "x"),
        ('emails[value eq "\' OR 1=1 --"].value', "no address"),
        ("emails", [{"value": "x" * 255 + "@a.example"}]),
        ("displayName", "x" * 101),
        ("name.givenName", "NUL \x00"),
        ("externalId", "x" * 201),
    ],
)
def test_a_hostile_patch_changes_nothing(acme: Provisioner, path: str, value: Any) -> None:
    created = acme.create()
    place = f"/Users/{created['id']}"
    acme.patch(place, {"op": "replace", "path": path, "value": value}, status=400)
    assert acme.send("GET", place) == created


@pytest.mark.parametrize(
    "condition",
    [
        'userName eq "x" or 1 eq 1',
        "userName eq \"' OR '1'='1\" or userName pr",
        'userName sw "z"',
        'password eq "x"',
        'person__password eq "x"',
        "(" * 5000 + 'userName eq "x"',
        'userName eq "\x00"',
        'userName eq "\\u0000"',
    ],
)
def test_a_hostile_filter_finds_nothing(acme: Provisioner, condition: str) -> None:
    acme.create()
    answer = acme.client.get("/scim/v2/Users", {"filter": condition})
    assert answer.status_code == 400
    assert answer.json()["scimType"] == "invalidFilter"


def test_bodies_and_pages_have_limits(acme: Provisioner) -> None:
    text = json.dumps({**ZOE, "displayName": "x" * settings.DATA_UPLOAD_MAX_MEMORY_SIZE})
    acme.send("POST", "/Users", text, status=413)
    acme.send("POST", "/Users", "{", status=400)
    acme.send("POST", "/Bulk", {}, status=501)
    acme.create(name={"formatted": "x" * 20_000}, status=400)
    acme.create(userName="zoe\0", status=400)
    assert not User.objects.filter(username=ZOE["userName"]).exists()
    for number in range(3):
        acme.create(userName=f"p{number}", externalId=str(number), emails=[])
    page = acme.send("GET", "/Users?startIndex=2&count=1")
    assert (page["totalResults"], [row["userName"] for row in page["Resources"]]) == (3, ["p1"])
    for nothing in ("count=0", "count=-1", f"startIndex={10**24}"):
        page = acme.send("GET", f"/Users?{nothing}")
        assert (page["totalResults"], page.get("Resources", [])) == (3, [])


def test_the_last_admin_stays(acme: Provisioner, cast: Cast) -> None:
    path = f"/Users/{acme.create()['id']}"
    accounts.set_groups(str(ZOE["userName"]), [Group.ADMINS], actor=None)
    accounts.disable("admin", actor=None)
    acme.patch(path, {"op": "replace", "path": "active", "value": False}, status=409)
    acme.send("DELETE", path, status=409)
    assert accounts.list_admins() == {ZOE["userName"]}


@pytest.mark.parametrize("name", ["Remote-User", "X-Forwarded-User", "X-Remote-User"])
def test_a_header_of_a_proxy_names_nobody(cast: Cast, name: str) -> None:
    browser = Client(headers={name: "admin"})
    assert browser.get("/people/").status_code == 302
    assert browser.get("/api/v1/runs").status_code == 401
    assert browser.get("/scim/v2/Users").status_code == 401


def test_hostile_names_of_groups(acme: Provisioner) -> None:
    name = "<script>alert(1)</script>\u202e"
    member = acme.create()["id"]
    group = acme.group(name, member)
    assert acme.send("GET", f"/Groups/{group['id']}")["displayName"] == name
    assert acme.send("GET", f"/Users/{member}")["groups"][0]["display"] == name
    acme.group(name, status=409)
    acme.group("NUL \x00", status=400)
    acme.group(" ", status=400)
    acme.group("x" * 201, status=400)
