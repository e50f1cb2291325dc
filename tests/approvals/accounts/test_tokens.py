"""Bearer tokens: shown once, kept as a hash, cut to their scopes, over with their owner."""

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.db import ProgrammingError, connection, transaction
from psycopg.errors import InsufficientPrivilege
from pytest_django import DjangoAssertNumQueries

from approvals.accounts import tokens
from approvals.errors import UnknownToken
from approvals.models import Token
from approvals.permissions.scopes import ALL_SCOPES, Scope
from runtime.errors import InvalidInput
from runtime.ports.access import Actor

pytestmark = pytest.mark.django_db


@pytest.fixture
def owner(bea: Actor) -> User:
    return User.objects.get(username=bea.person)


def test_the_secret_is_nowhere_in_the_row(owner: User) -> None:
    token, plain = tokens.create(owner, [Scope.RUNS_READ])
    assert tokens.authenticate(plain) == Actor(person="bea", token=token.public_id)
    assert token.scopes == ["runs:read"]
    public_id, secret = plain.removeprefix("aby_").split("_")
    assert len(secret) * 4 >= 160
    [row] = Token.objects.values()
    assert public_id in row.values()
    assert secret not in str(row)
    assert tokens.create(owner, [Scope.RUNS_READ])[1] != plain


def test_a_token_has_an_active_owner_and_scopes_that_exist(owner: User) -> None:
    with pytest.raises(InvalidInput) as caught:
        tokens.create(owner, ["runs:read", "root"])
    assert caught.value.field == "scopes"
    owner.is_active = False
    with pytest.raises(InvalidInput, match="is disabled"):
        tokens.create(owner, ALL_SCOPES)


def test_an_invalid_token_does_not_authenticate(owner: User) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    other, short = "0" if plain[-1] != "0" else "1", plain[:-1]
    wrong = ("", "aby_", short, short + other, short + "é", short + "\x00", plain + "\n")
    for text in (*wrong, plain.upper(), "aby_" + "0" * 16 + plain[20:]):
        assert tokens.authenticate(text) is None, text
    User.objects.filter(pk=owner.pk).update(is_active=False)
    assert tokens.authenticate(plain) is None
    token.refresh_from_db()
    assert token.last_used_at is None


def test_its_owner_revokes_a_token_for_good(owner: User) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    for public_id, person in ((token.public_id, "ada"), ("0" * 16, "bea"), ("", "bea")):
        with pytest.raises(UnknownToken):
            tokens.revoke(public_id, actor=person, owner=person)
    assert tokens.authenticate(plain) is not None
    first = tokens.revoke(token.public_id, actor="bea", owner="bea").revoked_at
    assert first is not None
    assert tokens.authenticate(plain) is None
    assert tokens.revoke(token.public_id, actor="admin").revoked_at == first


def refused_by_postgres(statement: str) -> bool:
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(statement)
    except ProgrammingError as refused:
        return isinstance(refused.__cause__, InsufficientPrivilege)
    return False


@pytest.mark.parametrize("moment", ["NULL", "now() + interval '1 day'"])
def test_postgres_refuses_to_make_a_revoked_token_valid_again(owner: User, moment: str) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    tokens.revoke(token.public_id, actor="admin")
    assert refused_by_postgres(f"UPDATE approvals_token SET revoked_at = {moment}")
    assert tokens.authenticate(plain) is None


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM approvals_token",
        "UPDATE approvals_token SET public_id = 'other'",
        "UPDATE approvals_token SET owner_id = (SELECT id FROM auth_user WHERE username = 'ada')",
        "UPDATE approvals_token SET created_at = created_at - interval '1 day'",
    ],
)
def test_postgres_keeps_a_token_where_its_owner_can_revoke_it(
    owner: User, ada: Actor, statement: str
) -> None:
    """One that was hidden for a while could be put back as it was, with its signature."""
    tokens.create(owner, ALL_SCOPES)
    assert refused_by_postgres(statement)


def test_use_is_noted_at_most_once_a_minute(
    owner: User, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    token, plain = tokens.create(owner, ALL_SCOPES)
    with django_assert_num_queries(2):
        tokens.authenticate(plain)
    with django_assert_num_queries(1):
        tokens.authenticate(plain)
    token.refresh_from_db()
    first = token.last_used_at
    assert first is not None
    before = first - timedelta(seconds=61)
    Token.objects.update(last_used_at=before)
    tokens.authenticate(plain)
    token.refresh_from_db()
    assert token.last_used_at is not None
    assert token.last_used_at > first
