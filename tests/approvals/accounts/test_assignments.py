"""Rights name their giver: in which runs and from when they count, who can confirm them, and signed rows."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest
from django.contrib.auth.hashers import check_password, make_password
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from pytest_django import Settings

from approvals import clock
from approvals.errors import LastAdmin, NotConfirmable
from approvals.models import Approval, Assignment, Token
from approvals.people import accounts, password_links, tokens
from approvals.people.login import Hasher
from approvals.port.adapter import ApprovalService
from approvals.rights import approval_rights, assignments, principals
from approvals.rights.access import SecondAdmin
from approvals.rights.principals import ALL_SCOPES
from approvals.rules.policy import Group
from runtime.errors import Forbidden
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid
from runtime.store import pool
from tests.support import seeds
from tests.support.costs import blocks_of

pytestmark = pytest.mark.django_db

DAY = 24 * 60 * 60
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def at_once(settings: Settings) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = 0


def given(name: str, *groups: Group, by: str | None) -> Actor:
    """A person whose groups come from an admin, and whose password does not."""
    accounts.create_person(username=name, password=PASSWORD, groups=[])
    accounts.set_groups(name, groups, actor=by)
    return Actor(person=name)


def confirm(name: str, what: str, by: str | None) -> None:
    key = User.objects.get(username=name).pk
    row = assignments.read_latest(User.objects.filter(username=name))[key, what]
    accounts.confirm(name, what, seq=row.seq, actor=by)


def _groups(actor: Actor) -> frozenset[str]:
    principal = principals.find_principal(actor)
    assert principal is not None
    return principal.groups


def _is_admin(actor: Actor) -> bool:
    return Group.ADMINS in _groups(actor)


def refusal(approval: Approval, actor: Actor) -> str | None:
    """Return the code of the refusal, None if there is none, after checking that lists agree."""
    principal = principals.find_principal(actor)
    decidable = approval_rights.match_decidable_requests(principal)
    offered = Approval.objects.filter(decidable, pk=approval.pk).exists()
    others = approval_rights.match_undecidable_requests(principal)
    assert Approval.objects.filter(others, pk=approval.pk).exists() is not offered
    try:
        seeds.decide(approval, actor)
    except Forbidden as refused:
        assert not offered
        return refused.code
    assert offered
    return None


@pytest.fixture
def second() -> Actor:
    """An admin who is independent of the other."""
    return given("second", Group.ADMINS, by=None)


def _dora(by: str | None, confirmed_by: str | None = "") -> Actor:
    dora = given("dora", Group.REVIEWERS, by=by)
    if confirmed_by != "":
        confirm("dora", "reviewers", by=confirmed_by)
    return dora


def _of_a_puppet(confirmed: bool) -> Actor:
    given("puppet", Group.ADMINS, by="admin")
    if confirmed:
        confirm("puppet", "admins", by="second")
    return _dora(by="puppet")


def _bea(*acts: Callable[[], object]) -> Actor:
    seeds.person("bea", Group.REVIEWERS)
    for act in acts:
        act()
    return Actor(person="bea")


PUT = partial(accounts.set_groups, "bea", actor="admin")
PASSWORD_OF_ADMIN = partial(accounts.set_password, "bea", "another horse battery", actor="admin")
PASSWORD_OF_HER_OWN = partial(accounts.set_password, "bea", "a third horse battery", actor="bea")
OFF_AND_ON = (
    partial(accounts.disable, "bea", actor="admin"),
    partial(accounts.enable, "bea", actor="admin"),
)


@pytest.mark.parametrize(
    ("who", "in_runs_of_admin", "cools_off"),
    [
        (lambda: _dora(by="admin"), "given_by_origin", True),
        (lambda: _of_a_puppet(confirmed=False), "given_by_origin", True),
        (lambda: _of_a_puppet(confirmed=True), None, True),
        (lambda: _dora(by=None), None, False),
        (lambda: _dora(by="admin", confirmed_by="second"), None, False),
        (lambda: _dora(by="admin", confirmed_by=None), None, False),
        (lambda: _bea(partial(PUT, ["reviewers"])), None, False),  # nothing is given anew
        (lambda: _bea(partial(PUT, []), partial(PUT, ["reviewers"])), "given_by_origin", True),
        (lambda: _bea(*OFF_AND_ON), "given_by_origin", True),
        (lambda: _bea(PASSWORD_OF_HER_OWN), None, False),
        (lambda: _bea(PASSWORD_OF_ADMIN), "given_by_origin", True),
        (lambda: _bea(PASSWORD_OF_ADMIN, PASSWORD_OF_HER_OWN), "given_by_origin", True),
    ],
)
def test_a_right_names_its_giver_and_cools_off(
    admin: Actor,
    second: Actor,
    settings: Settings,
    who: Callable[[], Actor],
    in_runs_of_admin: str | None,
    cools_off: bool,
) -> None:
    """It does not count in runs of the admin who gave it, or the password, nor for a while after that."""
    actor = who()
    assert refusal(seeds.pending(requester="ada"), actor) is None
    assert refusal(seeds.pending(requester="admin"), actor) == in_runs_of_admin
    settings.SIGNOFF_COOLING_OFF_SECONDS = DAY
    cooling = "cooling_off" if cools_off else None
    assert refusal(seeds.pending(requester="ada"), actor) == cooling


def test_a_right_does_not_count_in_runs_its_giver_steered(admin: Actor, second: Actor) -> None:
    dora = given("dora", Group.REVIEWERS, by="admin")
    steered, approved, both = (seeds.pending(requester="ada") for _ in range(3))
    ApprovalService().join(run=steered.run_id, person="admin")
    assert refusal(steered, dora) == "given_by_origin"
    seeds.decide(approved, dora)
    with pytest.raises(ApprovalVoid, match="from admin"):
        seeds.verify_approval(approved, origin=["admin"])
    confirm("dora", "reviewers", by="second")
    for person in ("admin", "second"):
        ApprovalService().join(run=both.run_id, person=person)
    assert refusal(both, dora) == "given_by_origin"
    assert refusal(seeds.pending(requester="second"), dora) is None


def test_a_new_right_cooled_off_later(admin: Actor, settings: Settings) -> None:
    settings.SIGNOFF_COOLING_OFF_SECONDS = DAY
    dora = given("dora", Group.REVIEWERS, by="admin")
    with pool.join_transaction() as connection:
        query = f"SELECT {principals.CREDENTIALS}"
        row = connection.execute(query, principals.build_parameters(dora)).fetchone()
    assert row is not None
    for later, cooled in ((0, False), (DAY + 60, True)):
        principal = principals.restore_principal(dora, row[0], seeds.moment(later), past=True)
        assert principal is not None
        assert (principal.cooling_until is None) is cooled


def test_an_admin_whom_the_giver_made_does_not_confirm(admin: Actor) -> None:
    assert _is_admin(given("puppet", Group.ADMINS, by="admin"))
    given("dora", Group.REVIEWERS, Group.ADMINS, by="admin")
    given("eva", Group.REVIEWERS, by="puppet")
    for name, by in (("dora", "puppet"), ("eva", "admin"), ("dora", "admin"), ("dora", "dora")):
        with pytest.raises(NotConfirmable, match="second admin"):
            confirm(name, "reviewers", by=by)


def test_an_independent_admin_does_not_confirm_their_own_right(admin: Actor, second: Actor) -> None:
    accounts.set_groups("second", [Group.ADMINS, Group.REVIEWERS], actor="admin")
    with pytest.raises(NotConfirmable, match="second admin"):
        confirm("second", "reviewers", by="second")


def test_a_membership_that_nobody_signed_makes_no_second_admin(admin: Actor) -> None:
    eve = given("eve", by="admin")
    User.objects.get(username=eve.person).groups.add(GroupRow.objects.get(name=Group.ADMINS))
    author = SecondAdmin(author=admin.person)
    assert (author.list_candidates(), author.may_be("eve")) == ([], False)
    given("second", Group.ADMINS, by=None)
    assert author.list_candidates() == ["second"]


def test_where_there_are_two_a_second_confirms_a_new_admin(admin: Actor, second: Actor) -> None:
    """Meanwhile the new one is not the admin who is left, and cannot be confirmed once it was given anew."""
    dora, eva = (given(name, Group.ADMINS, by="admin") for name in ("dora", "eva"))
    assert not _is_admin(dora)
    confirm("dora", "admins", by="second")
    assert _is_admin(dora)
    for groups in ([], [Group.ADMINS]):
        accounts.set_groups("eva", groups, actor="admin")
    with pytest.raises(NotConfirmable, match="changed"):
        accounts.confirm("eva", "admins", seq=1, actor="second")
    for name in ("dora", "second"):
        accounts.disable(name, actor="admin")
    assert not _is_admin(eva)
    with pytest.raises(LastAdmin, match="last active admin"):
        accounts.set_groups("admin", [], actor="admin")


def test_a_second_admin_confirms_a_new_password(admin: Actor, bea: Actor, second: Actor) -> None:
    owner = User.objects.get(username="bea")
    _, before = tokens.create(owner, ALL_SCOPES)
    accounts.set_password("bea", "another horse battery", actor="admin")
    _, since = tokens.create(owner, ALL_SCOPES)
    with pytest.raises(NotConfirmable, match="admin knows this password"):
        confirm("bea", "password", by="second")
    accounts.set_password("bea", "a third horse battery", actor="bea")
    confirm("bea", "password", by="second")
    assert tokens.authenticate(since) is None
    assert tokens.authenticate(before) is not None
    assert refusal(seeds.pending(requester="admin"), bea) is None
    accounts.set_password("bea", "a fourth horse battery", actor="bea")
    assert refusal(seeds.pending(requester="admin"), bea) is None


def _made(by: str | None) -> None:
    accounts.create_person(username="paul", password=PASSWORD, groups=[Group.REQUESTERS], actor=by)


def _set(by: str | None) -> None:
    accounts.set_password("paul", "another horse battery", actor=by)


def _link() -> None:
    token = password_links.create("paul", actor="anne").plain
    password_links.use(token, "another horse battery")


@pytest.mark.parametrize(
    ("acts", "refused"),
    [
        ([partial(_made, None)], False),
        ([partial(_made, "anne")], True),
        ([partial(_made, None), partial(_set, "anne")], True),
        ([partial(_made, None), _link], True),
        ([partial(_made, "anne"), partial(_set, "paul")], True),  # Anne knew the one before it
        ([partial(_made, "anne"), partial(_set, "second")], False),
        (
            [
                partial(_made, "anne"),
                partial(_set, "paul"),
                partial(confirm, "paul", "password", "second"),
            ],
            False,
        ),
        ([partial(given, "puppet", Group.ADMINS, by="anne"), partial(_made, "puppet")], True),
    ],
)
def test_who_gave_a_password_that_is_in_use_does_not_decide_in_the_runs_of_its_owner(
    admin: Actor, second: Actor, acts: Sequence[Callable[[], object]], refused: bool
) -> None:
    anne = given("anne", Group.ADMINS, Group.REVIEWERS, by=None)
    for act in acts:
        act()
    snapshot = replace(seeds.snapshot(seeds.run("ada"), requester="ada"), origin=("ada", "paul"))
    for approval in (seeds.pending(requester="paul"), *seeds.opened(snapshot)):
        assert refusal(approval, anne) == ("origin" if refused else None)
    assert refusal(seeds.pending(requester="ada"), anne) is None


def test_a_worker_carries_out_no_approval_of_who_gave_the_password(bea: Actor) -> None:
    _made(None)
    approval = seeds.pending(requester="paul")
    seeds.decide(approval, bea)
    row = assignments.find_password_row(User.objects.get(username="paul"))
    assert row is not None
    for given_at, counts in ((clock.read_time(), True), (row.given_at, False)):
        row.pk, row.seq, row.givers, row.given_at = None, row.seq + 1, ["bea"], given_at
        row.save(force_insert=True)
        with nullcontext() if counts else pytest.raises(ApprovalVoid, match="set the password of"):
            seeds.verify_approval(approval)


def test_a_password_given_at_no_time_is_one_that_was_given(bea: Actor) -> None:
    _made("bea")
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger refuses it
        cursor.execute("UPDATE approvals_assignment SET given_at = 'infinity'")
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")
    principal = principals.find_principal(bea)
    assert principal is not None
    assert principal.can_be == {"paul"}


def test_a_password_set_since_leaves_a_decision_alone(admin: Actor, bea: Actor) -> None:
    approval = seeds.pending(requester="ada")
    seeds.decide(approval, bea)
    PASSWORD_OF_ADMIN()
    seeds.verify_approval(approval, origin=["admin"])
    User.objects.filter(username="bea").update(password=make_password("another"))
    assert _groups(bea) == frozenset()
    seeds.verify_approval(approval)


def test_an_admin_with_a_password_by_another_waits_for_a_third(admin: Actor, second: Actor) -> None:
    third = given("third", Group.ADMINS, by=None)
    accounts.set_password("second", "another horse battery", actor="admin")
    accounts.set_password("second", "a third horse battery", actor="second")
    given("dora", Group.REVIEWERS, by="admin")
    assert not _is_admin(second)
    for name, what, by in (
        ("second", "password", "admin"),
        ("second", "password", "second"),
        ("dora", "reviewers", "second"),
    ):
        with pytest.raises(NotConfirmable, match="second admin"):
            confirm(name, what, by=by)
    confirm("second", "password", by="third")
    assert _is_admin(second)
    assert _is_admin(third)


def test_a_password_written_by_sql_gives_no_permission(bea: Actor) -> None:
    person = User.objects.get(username="bea")
    person.set_password("another horse battery")
    person.save()
    assert _groups(bea) == frozenset()
    PASSWORD_OF_HER_OWN()  # who wrote it can change it
    assert _groups(bea) == frozenset()


def test_a_login_leaves_the_stored_password_as_it_was_signed(settings: Settings) -> None:
    settings.PASSWORD_HASHERS = ["approvals.people.login.Hasher"]
    weak = make_password(PASSWORD, hasher=_Weak())
    changed: list[str] = []
    assert check_password(PASSWORD, weak, setter=changed.append)
    assert changed == []


class _Weak(Hasher):
    iterations = 1000


@pytest.mark.parametrize(
    "change",
    [
        {"what": "admins"},
        {"username": "ada"},
        {"givers": []},
        {"given_at": datetime.fromisoformat("2020-01-01T00:00Z")},
        {"act": "changed"},
        {"needs_second": False},
        {"confirmed_by": "second"},
        {"confirmed_at": datetime.fromisoformat("2020-01-01T00:00Z")},
        {"seq": 7},
        {"signature": ""},
        {"signature": "zz"},
        {"key_id": "unknown"},
    ],
)
def test_a_changed_copy_is_worth_nothing(
    admin: Actor, second: Actor, change: dict[str, object]
) -> None:
    given("dora", Group.ADMINS, by="admin")
    row = Assignment.objects.get(username="dora", what="admins")
    for name, value in {"id": None, "seq": 2, **change}.items():
        setattr(row, name, value)
    row.save()
    assert not assignments.is_in_force(Assignment.objects.latest("id"))


def test_a_right_stays_with_the_name_to_which_it_was_given(bea: Actor) -> None:
    people = User.objects.filter(username__in=("bea", "eve"))
    rows = assignments.read_latest(people).values()
    assert rows
    assert all(assignments.is_of(row, people.get()) for row in rows)
    people.update(username="eve")
    assert not any(assignments.is_of(row, people.get()) for row in rows)
    assert _groups(Actor(person="eve")) == frozenset()


def test_an_earlier_row_is_not_put_on_top_again(bea: Actor) -> None:
    memberships = User.objects.get(username="bea").groups
    memberships.clear()
    assert _groups(bea) == frozenset()  # the signed row alone gives nothing
    memberships.add(GroupRow.objects.get(name=Group.REVIEWERS))
    assert _groups(bea) == {Group.REVIEWERS}
    accounts.set_groups("bea", [], actor=None)
    memberships.add(GroupRow.objects.get(name=Group.REVIEWERS))
    assert _groups(bea) == frozenset()
    first = Assignment.objects.get(username="bea", what="reviewers", seq=1)
    first.pk = None
    with pytest.raises(DatabaseError), transaction.atomic():
        first.save()
    first.seq = 7
    first.save()
    assert _groups(bea) == frozenset()
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger refuses it
        cursor.execute("UPDATE approvals_assignment SET given_at = 'infinity' WHERE seq = 7")
        assert _groups(bea) == frozenset()
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")


@pytest.mark.parametrize(
    "change",
    [
        {"scopes": ["admin"]},
        {"secret_hash": "0" * 64},
        {"created_at": F("created_at") + timedelta(1)},
        {"signature": ""},
        {"key_id": ""},
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
    assert principals.find_principal(actor) is None


def test_rights_cost_the_same_beside_any_number_of_people(bea: Actor) -> None:
    """Postgres looks up the passwords that a person gave, and reads no others."""
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO auth_user (username, password, is_active, is_superuser, is_staff, first_name, last_name,"
            " email, date_joined) SELECT 'p' || n, 'p' || n, true, false, false, '', '', '', now()"
            " FROM generate_series(1, 5000) AS n"
        )
        cursor.execute(
            "INSERT INTO approvals_assignment (person_id, username, what, seq, act, at, givers, given_at, needs_second,"
            " signature, key_id)"
            " SELECT id, username, 'password', 1, 'given', now(), '[\"admin\"]', now(), false, '', '' FROM auth_user"
            " WHERE username LIKE 'p%'"
        )
        cursor.execute("ANALYZE approvals_assignment, auth_user")
        sql = f"SELECT {principals.CREDENTIALS_OF_PERSON}"
        assert blocks_of(cursor, sql, {"person": bea.person}) < 50
