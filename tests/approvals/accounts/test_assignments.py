"""Rights name their giver: in which runs and from when they count, who can confirm them, and signed rows."""

from datetime import datetime, timedelta

import pytest
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from pytest_django import Settings

from approvals.accounts import adoption, people, tokens
from approvals.accounts.password_hasher import Hasher
from approvals.adapter import Approvals
from approvals.errors import LastAdmin
from approvals.models import Adoption, Assignment, Request, Token
from approvals.permissions import assignments, principals, request_rules
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.errors import Forbidden
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid
from runtime.store import pool
from tests.support import seeds

pytestmark = pytest.mark.django_db

DAY = 24 * 60 * 60
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def at_once(settings: Settings) -> None:
    settings.ABEYANCE_COOLING_OFF_SECONDS = 0


def given(name: str, *groups: Group, by: str | None) -> Actor:
    """A person whose groups come from an admin, and whose password does not."""
    people.create_person(username=name, password=PASSWORD, groups=[])
    people.set_groups(name, groups, actor=by)
    return Actor(person=name)


def confirm(name: str, what: str, by: str | None) -> None:
    row = assignments.latest(User.objects.filter(username=name))[_key(name), what]
    people.confirm(name, what, seq=row.seq, actor=by)


def refused(request: Request, actor: Actor) -> str:
    """Return the code of the refusal, after checking that lists agree."""
    principal = principals.principal_of(actor)
    assert not Request.objects.filter(request_rules.decidable_requests(principal), pk=request.pk)
    assert Request.objects.filter(request_rules.undecidable_requests(principal), pk=request.pk)
    with pytest.raises(Forbidden) as caught:
        seeds.decide(request, actor)
    return caught.value.code


def decides(request: Request, actor: Actor) -> None:
    """Approve, after checking that lists offer it."""
    principal = principals.principal_of(actor)
    assert Request.objects.filter(request_rules.decidable_requests(principal), pk=request.pk)
    assert not Request.objects.filter(request_rules.undecidable_requests(principal), pk=request.pk)
    seeds.decide(request, actor)


def _key(name: str) -> int:
    return User.objects.get(username=name).pk


# Runs in which a right counts


def test_a_right_does_not_count_in_runs_of_its_giver(admin: Actor) -> None:
    dora = given("dora", Group.REVIEWERS, by="admin")
    assert refused(seeds.pending(requester="admin"), dora) == "given_by_origin"
    decides(seeds.pending(requester="ada"), dora)


def test_a_right_does_not_count_in_runs_its_giver_steered(admin: Actor) -> None:
    dora = given("dora", Group.REVIEWERS, by="admin")
    request = seeds.pending(requester="ada")
    Approvals().join(run=request.run_id, person="admin")
    assert refused(request, dora) == "given_by_origin"


def test_a_right_does_not_count_in_runs_of_the_givers_giver(admin: Actor) -> None:
    given("puppet", Group.ADMINS, by="admin")
    dora = given("dora", Group.REVIEWERS, by="puppet")
    assert refused(seeds.pending(requester="admin"), dora) == "given_by_origin"


def test_a_right_from_the_command_line_counts_everywhere(admin: Actor) -> None:
    decides(seeds.pending(requester="admin"), given("dora", Group.REVIEWERS, by=None))


def test_saving_groups_again_gives_nothing_anew(admin: Actor, bea: Actor) -> None:
    people.set_groups("bea", [Group.REVIEWERS], actor="admin")
    decides(seeds.pending(requester="admin"), bea)


def test_an_approval_is_void_once_the_giver_has_steered_the_run(admin: Actor) -> None:
    dora = given("dora", Group.REVIEWERS, by="admin")
    request = seeds.pending(requester="ada")
    seeds.decide(request, dora)
    with pytest.raises(ApprovalVoid, match="from admin"):
        Approvals().verify_approval(
            gate=request.gate, action_digest=request.action_digest, origin=["admin"]
        )


# The cooling-off period


def test_a_new_right_cools_off(admin: Actor, settings: Settings) -> None:
    settings.ABEYANCE_COOLING_OFF_SECONDS = DAY
    dora = given("dora", Group.REVIEWERS, by="admin")
    assert refused(seeds.pending(requester="ada"), dora) == "cooling_off"
    with pool.in_transaction() as connection:
        row = connection.execute(
            f"SELECT {principals.CREDENTIALS}", principals.parameters_of(dora)
        ).fetchone()
    assert row is not None
    principal = principals.from_rights(dora, row[0], seeds.moment(DAY + 60), past=True)
    assert principal is not None
    assert principal.cooling_until is None


def test_taken_and_given_back_it_cools_off_again(
    admin: Actor, bea: Actor, settings: Settings
) -> None:
    settings.ABEYANCE_COOLING_OFF_SECONDS = DAY
    people.set_groups("bea", [], actor="admin")
    people.set_groups("bea", [Group.REVIEWERS], actor="admin")
    assert refused(seeds.pending(requester="ada"), bea) == "cooling_off"


def test_enabling_gives_groups_anew(admin: Actor, bea: Actor, settings: Settings) -> None:
    people.disable("bea", actor="admin")
    people.enable("bea", actor="admin")
    assert refused(seeds.pending(requester="admin"), bea) == "given_by_origin"
    settings.ABEYANCE_COOLING_OFF_SECONDS = DAY
    assert refused(seeds.pending(requester="ada"), bea) == "cooling_off"


# A second admin


@pytest.fixture
def second() -> Actor:
    """An admin who is independent of the other."""
    return given("second", Group.ADMINS, by=None)


def test_a_second_admin_lifts_both(admin: Actor, second: Actor, settings: Settings) -> None:
    settings.ABEYANCE_COOLING_OFF_SECONDS = DAY
    dora = given("dora", Group.REVIEWERS, by="admin")
    confirm("dora", "reviewers", by="second")
    decides(seeds.pending(requester="admin"), dora)


def test_not_in_a_run_of_both_admins(admin: Actor, second: Actor) -> None:
    dora = given("dora", Group.REVIEWERS, by="admin")
    confirm("dora", "reviewers", by="second")
    request = seeds.pending(requester="admin")
    Approvals().join(run=request.run_id, person="second")
    assert refused(request, dora) == "given_by_origin"
    alone = seeds.pending(requester="second")
    decides(alone, dora)


def test_the_command_line_confirms_for_good(admin: Actor) -> None:
    dora = given("dora", Group.REVIEWERS, by="admin")
    confirm("dora", "reviewers", by=None)
    decides(seeds.pending(requester="admin"), dora)


def test_neither_giver_nor_person_confirms(admin: Actor) -> None:
    given("dora", Group.REVIEWERS, Group.ADMINS, by="admin")
    for name in ("admin", "dora"):
        with pytest.raises(LastAdmin):
            confirm("dora", "reviewers", by=name)


def test_an_admin_whom_the_giver_made_does_not_confirm(admin: Actor) -> None:
    given("puppet", Group.ADMINS, by="admin")
    given("dora", Group.REVIEWERS, by="admin")
    given("eva", Group.REVIEWERS, by="puppet")
    for name, by in (("dora", "puppet"), ("eva", "admin")):
        with pytest.raises(LastAdmin, match="second admin"):
            confirm(name, "reviewers", by=by)


def test_a_changed_assignment_cannot_be_confirmed(admin: Actor, second: Actor) -> None:
    given("dora", Group.REVIEWERS, by="admin")
    people.set_groups("dora", [], actor="admin")
    people.set_groups("dora", [Group.REVIEWERS], actor="admin")
    with pytest.raises(LastAdmin, match="changed"):
        people.confirm("dora", "reviewers", seq=1, actor="second")


def test_one_admin_makes_another_alone(admin: Actor) -> None:
    assert _is_admin(given("dora", Group.ADMINS, by="admin"))


def test_where_there_are_two_a_second_confirms_a_new_admin(admin: Actor, second: Actor) -> None:
    dora = given("dora", Group.ADMINS, by="admin")
    assert not _is_admin(dora)
    confirm("dora", "admins", by="second")
    assert _is_admin(dora)


def test_an_admin_who_waits_is_not_the_one_who_is_left(admin: Actor, second: Actor) -> None:
    given("dora", Group.ADMINS, by="admin")
    people.disable("second", actor="admin")
    with pytest.raises(LastAdmin, match="last active admin"):
        people.set_groups("admin", [], actor="admin")


def _is_admin(actor: Actor) -> bool:
    principal = principals.principal_of(actor)
    return principal is not None and Group.ADMINS in principal.groups


# Passwords


def test_a_setter_of_a_password_does_not_decide_with_it(
    admin: Actor, bea: Actor, settings: Settings
) -> None:
    people.set_password("bea", "another horse battery", actor="admin")
    assert refused(seeds.pending(requester="admin"), bea) == "given_by_origin"
    settings.ABEYANCE_COOLING_OFF_SECONDS = DAY
    assert refused(seeds.pending(requester="ada"), bea) == "cooling_off"


def test_changing_it_proves_nothing(admin: Actor, bea: Actor) -> None:
    people.set_password("bea", "another horse battery", actor="admin")
    people.set_password("bea", "a third horse battery", actor="bea")
    assert refused(seeds.pending(requester="admin"), bea) == "given_by_origin"


def test_a_password_of_ones_own_counts_everywhere(admin: Actor, bea: Actor) -> None:
    people.set_password("bea", "another horse battery", actor="bea")
    decides(seeds.pending(requester="admin"), bea)


def test_a_second_admin_confirms_a_password_that_was_changed(
    admin: Actor, bea: Actor, second: Actor
) -> None:
    owner = User.objects.get(username="bea")
    _, before = tokens.create(owner, ALL_SCOPES)
    people.set_password("bea", "another horse battery", actor="admin")
    _, since = tokens.create(owner, ALL_SCOPES)
    with pytest.raises(LastAdmin, match="admin knows this password"):
        confirm("bea", "password", by="second")
    people.set_password("bea", "a third horse battery", actor="bea")
    confirm("bea", "password", by="second")
    assert tokens.authenticate(since) is None
    assert tokens.authenticate(before) is not None
    decides(seeds.pending(requester="admin"), bea)
    people.set_password("bea", "a fourth horse battery", actor="bea")
    decides(seeds.pending(requester="admin"), bea)


def test_a_password_set_since_leaves_a_decision_alone(admin: Actor, bea: Actor) -> None:
    request = seeds.pending(requester="ada")
    seeds.decide(request, bea)
    people.set_password("bea", "another horse battery", actor="admin")
    Approvals().verify_approval(
        gate=request.gate, action_digest=request.action_digest, origin=["admin"]
    )


def test_an_admin_whose_password_another_sets_waits_for_a_third(
    admin: Actor, second: Actor
) -> None:
    third = given("third", Group.ADMINS, by=None)
    people.set_password("second", "another horse battery", actor="admin")
    people.set_password("second", "a third horse battery", actor="second")
    assert not _is_admin(second)
    for by in ("admin", "second"):
        with pytest.raises(LastAdmin, match="second admin"):
            confirm("second", "password", by=by)
    confirm("second", "password", by="third")
    assert _is_admin(second)
    assert _is_admin(third)


def test_an_admin_confirms_nothing_of_who_set_their_password(admin: Actor, second: Actor) -> None:
    people.disable("second", actor="admin")
    people.set_password("second", "another horse battery", actor="admin")
    people.enable("second", actor="admin")
    given("dora", Group.REVIEWERS, by="admin")
    with pytest.raises(LastAdmin, match="second admin"):
        confirm("dora", "reviewers", by="second")


def test_a_password_written_by_sql_gives_no_permission(bea: Actor) -> None:
    person = User.objects.get(username="bea")
    person.set_password("another horse battery")
    person.save()
    principal = principals.principal_of(bea)
    assert principal is not None
    assert principal.groups == frozenset()
    people.set_password(
        "bea", "a third horse battery", actor="bea"
    )  # the giver knows the password and can change it
    assert principals.principal_of(bea) == principal


def test_a_login_leaves_the_stored_password_as_it_was_signed(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["approvals.accounts.password_hasher.Hasher"]
    weak = make_password(PASSWORD, hasher=_Weak())
    changed: list[str] = []
    assert check_password(PASSWORD, weak, setter=changed.append)
    assert changed == []


class _Weak(Hasher):
    iterations = 1000


# Rows


def test_an_unsigned_membership_gives_no_right(cyril: Actor) -> None:
    User.objects.get(username="cyril").groups.add(GroupRow.objects.get(name=Group.REVIEWERS))
    assert principals.principal_of(cyril) == principals.Principal(
        person="cyril", groups=frozenset(), scopes=ALL_SCOPES
    )


@pytest.mark.parametrize(
    "change",
    [
        {"what": "admins"},
        {"username": "ada"},
        {"givers": []},
        {"given_at": datetime.fromisoformat("2020-01-01T00:00Z")},
        {"act": "adopted"},
        {"needs_second": False},
        {"confirmed_by": "second"},
        {"confirmed_at": datetime.fromisoformat("2020-01-01T00:00Z")},
        {"seq": 7},
        {"signature": None},
        {"signature": "zz"},
        {"key_id": "unknown"},
    ],
)
def test_a_copy_with_another_value_counts_for_nothing(
    admin: Actor, second: Actor, change: dict[str, object]
) -> None:
    given("dora", Group.ADMINS, by="admin")
    row = Assignment.objects.get(username="dora", what="admins")
    for name, value in {"id": None, "seq": 2, **change}.items():
        setattr(row, name, value)
    row.save()
    assert not assignments.in_force(Assignment.objects.latest("id"))


def test_a_signed_right_gives_nothing_without_the_membership(bea: Actor, ada: Actor) -> None:
    people.set_groups("ada", [Group.REQUESTERS, Group.REVIEWERS], actor=None)
    User.objects.get(username="bea").groups.clear()
    assert _groups(bea) == frozenset()


def test_a_token_gives_nothing_to_another_person(bea: Actor, ada: Actor) -> None:
    token, _ = tokens.create(User.objects.get(username="ada"), ["approvals:decide"])
    assert principals.principal_of(Actor(person="bea", token=token.public_id)) is None


def test_a_password_of_later_voids_no_approval(bea: Actor) -> None:
    request = seeds.pending(requester="ada")
    seeds.decide(request, bea)
    User.objects.filter(username="bea").update(password=make_password("another"))
    assert _groups(bea) == frozenset()
    Approvals().verify_approval(gate=request.gate, action_digest=request.action_digest)


def test_a_row_whose_time_is_none_gives_no_right(bea: Actor) -> None:
    row = Assignment.objects.get(username="bea", what="reviewers")
    row.pk, row.seq = None, 2
    row.save()
    assert Group.REVIEWERS not in _groups(bea)
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger refuses it
        cursor.execute("UPDATE approvals_assignment SET given_at = 'infinity' WHERE seq = 2")
    assert Group.REVIEWERS not in _groups(bea)


def _groups(actor: Actor) -> frozenset[str]:
    principal = principals.principal_of(actor)
    assert principal is not None
    return principal.groups


def test_an_earlier_row_is_not_put_on_top_again(bea: Actor) -> None:
    people.set_groups("bea", [], actor=None)
    User.objects.get(username="bea").groups.add(GroupRow.objects.get(name=Group.REVIEWERS))
    assert principals.principal_of(bea) == principals.Principal(
        person="bea", groups=frozenset(), scopes=ALL_SCOPES
    )
    first = Assignment.objects.get(username="bea", what="reviewers", seq=1)
    first.pk = None
    with pytest.raises(DatabaseError), transaction.atomic():
        first.save()


@pytest.mark.parametrize("statement", ["UPDATE {} SET act = 'given'", "DELETE FROM {}"])
def test_postgres_refuses_to_change_or_delete_a_row(bea: Actor, statement: str) -> None:
    with pytest.raises(DatabaseError, match="append-only"), connection.cursor() as cursor:
        cursor.execute(statement.format("approvals_assignment"))


@pytest.mark.parametrize(
    "change",
    [
        {"scopes": ["admin"]},
        {"secret_hash": "0" * 64},
        {"created_at": F("created_at") + timedelta(1)},
        {"signature": None},
        {"key_id": None},
    ],
)
def test_a_token_that_was_changed_opens_nothing(bea: Actor, change: dict[str, object]) -> None:
    token, plain = tokens.create(User.objects.get(username="bea"), ["approvals:read"])
    actor = tokens.authenticate(plain)
    assert actor is not None
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger refuses it
    Token.objects.filter(pk=token.pk).update(**change)
    assert tokens.authenticate(plain) is None
    assert principals.principal_of(actor) is None


# Rights from before assignments were recorded


def test_existing_assignments_are_adopted_once(cyril: Actor) -> None:
    person, group = User.objects.get(username="cyril"), GroupRow.objects.get(name=Group.REVIEWERS)
    person.groups.add(group)
    token, plain = tokens.create(person, ALL_SCOPES)
    Token.objects.filter(pk=token.pk).update(signature=None)
    assert adoption.adopt()
    assert tokens.authenticate(plain) is not None
    decides(seeds.pending(requester="ada"), cyril)

    people.create_person(username="dora", password=PASSWORD, groups=[])
    User.objects.get(username="dora").groups.add(group)
    assert not adoption.adopt()
    principal = principals.principal_of(Actor(person="dora"))
    assert principal is not None
    assert principal.groups == frozenset()
    assert Adoption.objects.count() == 1
