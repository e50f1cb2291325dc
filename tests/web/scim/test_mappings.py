"""Groups of directories and of providers give rights by mappings that two admins made, and end them."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from django.test.utils import override_settings
from django.utils import timezone

from approvals.errors import LogBroken, NotConfirmable
from approvals.models import Approval, ApprovalClaim, DirectoryEntry, Handover, MappingAct
from approvals.people import accounts, mappings
from approvals.rights import assignments, principals
from approvals.rules.policy import Group
from config.env.environment import ROOT
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from tests.docs.pages import blocks
from tests.support.commands import tried
from tests.support.openid_provider import OpenIDProvider, at_provider, back_from
from tests.support.pages import has, log_in, queries_at_most, reader_of, shows
from tests.support.seeds import Cast
from tests.web.scim.provisioner import ZOE, Provisioner

pytestmark = pytest.mark.django_db

NAME = str(ZOE["userName"])
SOURCE = "directory acme"
STAFF = (SOURCE, "Staff", "reviewers")


@pytest.fixture
def second(cast: Cast) -> str:
    """An admin who is independent of `admin`."""
    accounts.create_person(username="eva", password=None, groups=[Group.ADMINS])
    return "eva"


def _groups(name: str = NAME) -> frozenset[str]:
    principal = principals.find_principal(Actor(person=name))
    return frozenset() if principal is None else principal.groups


def _map(source: str, value: str, right: str) -> None:
    mappings.propose(source, value, right, actor=None)
    mappings.confirm(source, value, right, actor=None)


def test_a_group_that_an_admin_took_away_stays_away(acme: Provisioner, cast: Cast) -> None:
    member = acme.create()["id"]
    _map(*STAFF)
    staff = f"/Groups/{acme.group('Staff', member)['id']}"
    assert _groups() == {"reviewers"}
    accounts.set_groups(NAME, [], actor="admin")
    acme.patch(f"/Users/{member}", {"op": "replace", "path": "displayName", "value": "Zoe"})
    acme.group("Others", member)
    assert _groups() == frozenset()
    acme.patch(staff, {"op": "replace", "path": "members", "value": []})
    acme.patch(staff, {"op": "add", "path": "members", "value": [{"value": member}]})
    assert _groups() == {"reviewers"}
    accounts.set_groups(NAME, [], actor="admin")
    mappings.withdraw(*STAFF, actor="admin")
    _map(*STAFF)
    assert _groups() == {"reviewers"}


def test_a_group_gives_nothing_before_a_second_admin_confirms(
    acme: Provisioner, second: str
) -> None:
    member = acme.create()["id"]
    mappings.propose(*STAFF, actor="admin")
    group = acme.group("Staff", member)["id"]
    assert _groups() == frozenset()
    for admin in ("admin", "bea", NAME):
        with pytest.raises(NotConfirmable):
            mappings.confirm(*STAFF, actor=admin)
    mappings.confirm(*STAFF, actor=second)
    assert _groups() == {"reviewers"}
    row = assignments.read_latest([User.objects.get(username=NAME)])
    right = next(right for (_, what), right in row.items() if what == "reviewers")
    assert (right.givers, right.confirmed_by) == ([SOURCE, "admin"], second)
    acme.patch(f"/Groups/{group}", {"op": "remove", "path": f'members[value eq "{member}"]'})
    assert _groups() == frozenset()
    acme.patch(f"/Groups/{group}", {"op": "add", "path": "members", "value": [{"value": member}]})
    assert _groups() == {"reviewers"}
    mappings.withdraw(*STAFF, actor="admin")
    assert _groups() == frozenset()


def test_rights_follow_a_new_name_and_the_end_of_a_group(acme: Provisioner, cast: Cast) -> None:
    _map(*STAFF)
    group = f"/Groups/{acme.group('Staff', acme.create()['id'])['id']}"
    assert _groups() == {"reviewers"}
    acme.patch(group, {"op": "replace", "path": "displayName", "value": "Guests"})
    assert _groups() == frozenset()
    acme.patch(group, {"op": "replace", "path": "displayName", "value": "Staff"})
    assert _groups() == {"reviewers"}
    acme.send("DELETE", group, status=204)
    assert _groups() == frozenset()


def test_a_right_that_an_admin_gave_stays(acme: Provisioner, cast: Cast) -> None:
    _map(*STAFF)
    person = f"/Users/{(member := acme.create()['id'])}"
    accounts.set_groups(NAME, [Group.REVIEWERS, Group.REQUESTERS], actor=None)
    group = acme.group("Staff", member)["id"]
    acme.send("DELETE", f"/Groups/{group}", status=204)
    assert _groups() == {"reviewers", "requesters"}
    acme.patch(person, {"op": "replace", "path": "active", "value": False})
    acme.patch(person, {"op": "replace", "path": "active", "value": True})
    assert _groups() == frozenset()  # the directory has none to give


def test_a_directory_makes_no_admin_by_itself(acme: Provisioner, cast: Cast) -> None:
    member = acme.create()["id"]
    for name in ("admins", "reviewers", "password", "oidc:acme", SOURCE):
        acme.group(name, member)
    assert _groups() == frozenset()
    assert accounts.list_admins() == {"admin"}
    _map(SOURCE, "admins", Group.ADMINS)
    assert accounts.list_admins() == {"admin", NAME}
    assert "directory acme" in assignments.list_hands(NAME)


def test_the_last_admin_of_a_mapping_stays(acme: Provisioner, cast: Cast) -> None:
    _map(SOURCE, "Boss", Group.ADMINS)
    group = acme.group("Boss", acme.create()["id"])["id"]
    accounts.disable("admin", actor=None)
    acme.send("DELETE", f"/Groups/{group}", status=409)
    acme.patch(f"/Groups/{group}", {"op": "remove", "path": "members"}, status=409)
    assert accounts.list_admins() == {NAME}


def test_the_only_admin_confirms_a_day_later_with_limits(acme: Provisioner, cast: Cast) -> None:
    mappings.propose(*STAFF, actor="admin")
    [mapping] = mappings.find_all(SOURCE)
    assert not mappings.may_confirm(mapping, "admin")
    late = replace(mapping, proposed_at=mapping.proposed_at - timedelta(hours=24))
    assert mappings.may_confirm(late, "admin")
    alone = replace(late, confirmed_by="admin", confirmed_at=timezone.now())
    assert alone.is_alone
    assert not replace(alone, confirmed_by="eva").is_alone
    assert not replace(alone, proposed_by=None, confirmed_by=None).is_alone


def test_an_act_of_another_program_counts_for_nothing(acme: Provisioner, cast: Cast) -> None:
    terms = {"source": SOURCE, "act": "proposed", "value": "Staff", "gives": "admins"}
    MappingAct.objects.create(**terms, seq=1, at=timezone.now(), signature="00", key_id="x")
    with pytest.raises(LogBroken):
        mappings.find_all(SOURCE)


def test_a_row_of_another_program_puts_no_one_into_a_group(acme: Provisioner, cast: Cast) -> None:
    _map(*STAFF)
    acme.create()
    group = acme.group("Guests")
    DirectoryEntry.objects.filter(pk=group["id"]).update(name="Staff")
    acme.send("GET", f"/Groups/{group['id']}", status=404)
    _map(SOURCE, "Other", Group.REQUESTERS)  # which reads all people and groups anew
    assert _groups() == frozenset()


@pytest.mark.parametrize(
    ("mapping", "field"),
    [
        (("directory other", "Staff", "reviewers"), "source"),
        (("oidc:acme", "Staff", "reviewers"), "source"),
        (("admin", "Staff", "reviewers"), "source"),
        ((SOURCE, "", "reviewers"), "value"),
        ((SOURCE, "x" * 201, "reviewers"), "value"),
        ((SOURCE, "NUL \x00", "reviewers"), "value"),
        ((SOURCE, "Staff", "password"), "right"),
        ((SOURCE, "Staff", "oidc:acme"), "right"),
        ((SOURCE, "", "directory acme"), "value"),
    ],
)
def test_a_wrong_mapping_is_refused(
    acme: Provisioner, mapping: tuple[str, str, str], field: str
) -> None:
    with pytest.raises(InvalidInput) as refused:
        mappings.propose(*mapping, actor=None)
    assert refused.value.field == field


def test_a_disabled_person_holds_no_request(acme: Provisioner, asked: Approval) -> None:
    person = f"/Users/{acme.create()['id']}"
    at = timezone.now()
    ApprovalClaim.objects.create(approval=asked, person=NAME, at=at, until=at + timedelta(hours=1))
    Handover.objects.create(approval=asked, person=NAME, by="bea", note="", at=at)
    acme.patch(person, {"op": "replace", "path": "active", "value": False})
    assert not ApprovalClaim.objects.exists()
    assert not Handover.objects.exists()


@pytest.fixture
def provider(running: OpenIDProvider) -> Iterator[OpenIDProvider]:
    with at_provider(running):
        known = replace(settings.SIGNOFF_OIDC["acme"], claim="groups")
        with override_settings(SIGNOFF_OIDC={"acme": known}):
            yield running


def _sign_in() -> str | None:
    browser = Client()
    browser.get(back_from(browser.get("/login/oidc/acme/")["Location"]))
    return reader_of(browser)


def test_a_claim_gives_and_ends_rights_at_each_sign_in(
    provider: OpenIDProvider, second: str
) -> None:
    mapping = ("oidc:acme", "staff", "reviewers")
    provider.claims["groups"] = ["staff", "admins", 7, None]
    name = str(_sign_in())
    assert _groups(name) == frozenset()
    mappings.propose(*mapping, actor="admin")
    mappings.confirm(*mapping, actor=second)
    assert _groups(name) == frozenset()  # only a sign-in says who is in which group
    assert _sign_in() == name
    assert _groups(name) == {"reviewers"}
    for value in (["guests"], "guests", [], None):
        provider.claims["groups"] = ["staff"]
        _sign_in()
        assert _groups(name) == {"reviewers"}
        provider.claims["groups"] = value
        _sign_in()
        assert _groups(name) == frozenset()
    provider.claims["groups"] = ["staff"]
    _sign_in()
    mappings.withdraw(*mapping, actor="admin")
    assert _groups(name) == frozenset()


def test_unreadable_groups_take_no_right_away(provider: OpenIDProvider, cast: Cast) -> None:
    _map("oidc:acme", "staff", "reviewers")
    provider.claims["groups"] = "staff"
    name = str(_sign_in())
    assert _groups(name) == {"reviewers"}, "a text is one group"
    elsewhere = {"_claim_names": {"groups": "src1"}}
    for wrong in ({"groups": {"staff": True}}, {"groups": ["x"] * 1001}, elsewhere):
        provider.claims.pop("groups", None)
        provider.token = wrong
        assert _sign_in() is None
        assert _groups(name) == {"reviewers"}


def test_people_of_a_directory_sign_in_as_their_external_id(
    acme: Provisioner, provider: OpenIDProvider, cast: Cast
) -> None:
    provider.claims |= {"sub": "00u1", "email": NAME, "email_verified": True}
    person = f"/Users/{acme.create()['id']}"
    assert _sign_in() is None  # the address alone opens no account
    _map(SOURCE, "", "oidc:acme")
    assert _sign_in() == NAME
    acme.patch(person, {"op": "replace", "path": "externalId", "value": "00u2"})
    assert _sign_in() is None
    acme.patch(person, {"op": "replace", "path": "externalId", "value": "00u1"})
    acme.patch(person, {"op": "replace", "path": "active", "value": False})
    assert _sign_in() is None
    acme.patch(person, {"op": "replace", "path": "active", "value": True})
    assert _sign_in() == NAME


def test_a_directory_takes_no_sign_in_of_another_person(
    acme: Provisioner, provider: OpenIDProvider, cast: Cast
) -> None:
    provider.claims |= {"sub": "9", "email": "yan@acme.example", "email_verified": True}
    name = _sign_in()
    _map(SOURCE, "", "oidc:acme")
    assert acme.create(externalId="9", status=409)["scimType"] == "uniqueness"
    assert _sign_in() == name


def test_a_new_subject_is_given_by_who_made_the_token(
    provider: OpenIDProvider, acme: Provisioner, cast: Cast
) -> None:
    """An admin with a token could sign in as a person of the directory: the person decides in none of their runs."""
    _map(SOURCE, "", "oidc:acme")
    person = acme.create()["id"]
    assert "admin" not in assignments.list_hands(NAME)
    by_admin = Provisioner(by="admin")
    by_admin.patch(f"/Users/{person}", {"op": "replace", "path": "externalId", "value": "9"})
    assert "admin" in assignments.list_hands(NAME)


def test_the_page_proposes_confirms_and_shows_hostile_names(
    acme: Provisioner, second: str, admin: Client
) -> None:
    shows(admin, "/people/", "Directories")
    hostile = '<script>alert("x")</script>\u202e'
    acme.group(hostile, acme.create()["id"])
    page = shows(admin, "/directories/", SOURCE, "1 person", "&lt;script&gt;")
    assert "\u202e" not in page
    assert hostile not in page
    form = {"source": SOURCE, "value": hostile, "right": "reviewers"}
    assert admin.post("/directories/mappings/add/", form).status_code == 302
    assert admin.post("/directories/mappings/add/", form).status_code == 422
    shows(admin, "/directories/", "waits for a second admin", hides=('value="confirm"',))
    change = {**form, "act": "confirm"}
    admin.post("/directories/mappings/change/", change)
    assert _groups() == frozenset()
    other = log_in(User.objects.get(username=second))
    shows(other, "/directories/", 'value="confirm"')
    other.post("/directories/mappings/change/", change)
    assert _groups() == {"reviewers"}
    other.post("/directories/mappings/change/", {**form, "act": "withdraw"})
    assert _groups() == frozenset()
    assert other.post("/directories/mappings/change/", {**form, "act": "x"}).status_code == 404


def test_pages_of_people_and_directories_cost_the_same_for_many(
    acme: Provisioner, admin: Client
) -> None:
    for number in range(8):
        acme.create(userName=f"p{number}", externalId=str(number), emails=[])
        mappings.propose(SOURCE, f"Staff {number}", "reviewers", actor="admin")
    for path, budget in (("/directories/", 17), ("/people/", 13)):
        with queries_at_most(budget):
            admin.get(path)


def test_a_token_from_the_page_is_shown_once(admin: Client, cast: Cast) -> None:
    add = "/directories/tokens/add/"
    assert admin.post(add, {"name": "Not a name", "days": "30"}).status_code == 422
    assert admin.post(add, {"name": "acme", "days": "9999"}).status_code == 422
    page = admin.post(add, {"name": "acme", "days": "30"}).content.decode()
    token = page.split('class="secret">')[1].split("<")[0]
    browser = Client(headers={"authorization": f"Bearer {token}"})
    assert browser.get("/scim/v2/Users").status_code == 200
    shows(admin, "/directories/", "by <bdi>admin</bdi>", hides=(token,))
    public_id = token.split("_")[1]
    assert admin.post(f"/directories/tokens/{public_id}/revoke/").status_code == 302
    assert browser.get("/scim/v2/Users").status_code == 401
    assert admin.post("/directories/tokens/none/revoke/").status_code == 404


def _run(*words: str) -> str:
    output, problem = tried(*words)
    assert problem == ""
    return output


def test_the_guide_provisions(cast: Cast, provider: OpenIDProvider) -> None:
    page = ROOT / "docs/how-to/provision-with-scim.md"
    [block] = blocks(page)
    lines = [line.split("#")[0] for line in block.text.splitlines()]
    token, *said = [_run(*shlex.split(line)[1:]) for line in lines]
    assert all("has" in text for text in said)
    directory = Provisioner()
    directory.client = Client(headers={"authorization": f"Bearer {token.strip()}"})
    provider.claims |= {"sub": "00u1", "email": NAME, "email_verified": True}
    directory.group("Finance approvers", directory.create()["id"])
    assert _groups() == {"reviewers"}
    assert _sign_in() == NAME
    assert SOURCE in _run("directories", "list")
    _run("directories", "unmap", SOURCE, "Finance approvers", "reviewers")
    assert _groups() == frozenset()
    has(page.read_text(), "/scim/v2", "SIGNOFF_OIDC_ACME_GROUPS")
