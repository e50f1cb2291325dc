"""The log of signed acts: the state that its acts make, and each way in which its rows could be forged."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, cast

import pytest
from django.apps import apps
from django.db import IntegrityError, connection, transaction
from django.db.models import Model

from approvals.errors import LogBroken
from approvals.models import PromptAct
from approvals.models.signed import SignedAct, SignedRow
from approvals.signed import rows
from approvals.signed.rows import SignedLog
from config import grants
from runtime.keyring import purposes, signatures
from runtime.store import pool
from tests.support import seeds

pytestmark = pytest.mark.django_db

# The tables with an enabled trigger that refuses UPDATE and DELETE before each row.
APPEND_ONLY = """
    SELECT tgrelid::regclass::text FROM pg_trigger
    WHERE tgfoid = 'runtime_refuse_change'::regproc AND tgtype = 1 + 2 + 8 + 16 AND tgenabled = 'O'
"""
NAME, OTHER = "shop/desk", "shop/till"
TEXTS = ["one", "two", "three"]


def _with_text(texts: list[str], row: PromptAct) -> list[str]:
    return [*texts, row.text]


LOG = SignedLog(
    PromptAct, "name", noun="the prompt {0.name}", start=lambda name: [name], apply=_with_text
)


@pytest.fixture(autouse=True)
def acts() -> None:
    LOG.forget()
    for name in (NAME, OTHER):
        for number, text in enumerate(TEXTS, 1):
            LOG.append("saved", by="admin", name=name, number=number, text=text)


def write(statement: str, *values: str | int) -> None:
    """Change rows as a program could that owns the tables."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL session_replication_role = replica")  # no trigger refuses it
        cursor.execute(statement, values)
        cursor.execute("SET LOCAL session_replication_role = DEFAULT")


def test_the_acts_on_a_subject_are_numbered_and_folded_in_their_order() -> None:
    assert LOG.read(name=NAME) == [NAME, *TEXTS]
    assert [row.seq for row in LOG.rows(name=OTHER)] == [1, 2, 3]
    assert LOG.read(name="shop/none") == ["shop/none"]
    write("UPDATE approvals_promptact SET id = id + 100 WHERE seq = 1")  # now its last row
    write("SET LOCAL enable_indexscan = off")
    write("SET LOCAL enable_bitmapscan = off")
    assert LOG.read(name=NAME) == [NAME, *TEXTS]  # the order of the table does not count


@pytest.mark.django_db(transaction=True)
def test_times_are_in_utc_also_if_postgres_has_another_zone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PGTZ", "Asia/Tokyo")  # the zone of new connections
    pool.close()
    try:
        assert {row.at.utcoffset() for row in LOG.rows(name=NAME)} == {timedelta()}
    finally:
        pool.close()


def remove_first() -> None:
    write("DELETE FROM approvals_promptact WHERE name = %s AND seq = 1", NAME)


def remove_one_between() -> None:
    write("DELETE FROM approvals_promptact WHERE name = %s AND seq = 2", NAME)


def change() -> None:
    write("UPDATE approvals_promptact SET text = 'Pay Eve.' WHERE name = %s AND seq = 2", NAME)


def reorder() -> None:
    for old, new in ((1, 9), (2, 1), (9, 2)):
        write(
            "UPDATE approvals_promptact SET seq = %s WHERE name = %s AND seq = %s", new, NAME, old
        )


def repeat() -> None:
    """Append a copy of an earlier act, so that a text comes back which was replaced."""
    _copy(1, name=NAME, seq=4)


def take_from_another_subject() -> None:
    _copy(4, name=NAME, seq=4)


def sign_for_another_log() -> None:
    """An act that a person signed in another table, in a row of this one with the same values."""
    row = _unsigned()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(PromptAct, "KIND", "policy")
        rows.add(row)


def sign_with_the_key_of_decisions() -> None:
    row = _unsigned()
    _insert(row, signatures.sign(purposes.DECISIONS, rows.build_signed_text(row)))


def name_an_unknown_key() -> None:
    row = _unsigned()
    signature = signatures.sign(purposes.RIGHTS, rows.build_signed_text(row))
    _insert(row, signatures.Signature(hex=signature.hex, key_id="unknown"))


def leave_unsigned() -> None:
    _unsigned().save(force_insert=True)


ATTACKS: dict[Callable[[], None], str] = {
    remove_first: "act 1 on the prompt shop/desk is missing",
    remove_one_between: "act 2 on the prompt shop/desk is missing",
    change: "act 2 on the prompt shop/desk is not the one that was signed",
    reorder: "act 1 on the prompt shop/desk is not the one",
    repeat: "act 4 on the prompt shop/desk is not the one",
    take_from_another_subject: "act 4 on the prompt shop/desk is not the one",
    sign_for_another_log: "act 4 on the prompt shop/desk is not the one",
    sign_with_the_key_of_decisions: "act 4 on the prompt shop/desk is not the one",
    name_an_unknown_key: "act 4 on the prompt shop/desk is not the one",
    leave_unsigned: "act 4 on the prompt shop/desk is not the one",
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_log_is_never_read(attack: Callable[[], None]) -> None:
    attack()
    with pytest.raises(LogBroken, match=ATTACKS[attack]):
        LOG.read(name=NAME)
    assert LOG.read(name=OTHER) == [OTHER, *TEXTS]


def test_acts_are_read_again_when_there_are_more_of_them() -> None:
    assert len(LOG.read_recent_rows(name=NAME)[0]) == 3
    LOG.append("saved", by="admin", name=NAME, number=4, text="four")
    assert [row.text for row in LOG.read_recent_rows(name=NAME)[0]] == [*TEXTS, "four"]
    _copy(1, name=NAME, seq=5)
    with pytest.raises(LogBroken):
        LOG.read_recent_rows(name=NAME)


def test_the_acts_on_each_subject_are_remembered_apart() -> None:
    for name in (NAME, OTHER):
        assert [row.name for row in LOG.read_recent_rows(name=name)[0]] == [name] * 3


def test_of_two_acts_with_one_number_the_second_is_refused() -> None:
    with pytest.raises(IntegrityError), transaction.atomic():
        LOG.append("saved", by="admin", name=NAME, seq=3, number=3, text="x")


def test_no_two_tables_have_the_same_kind() -> None:
    tables = _tables(SignedRow)
    kinds = [table.KIND for table in tables]
    assert len(tables) == 17
    assert len(set(kinds)) == len(kinds)


def test_every_column_of_an_act_is_signed() -> None:
    for table in _tables(SignedAct):
        names = {field.attname for field in table._meta.concrete_fields}
        unsigned = names - {*table.SIGNED_FIELDS, "id", "signature", "key_id"}
        assert unsigned <= {"run", "frame", "call", "approval"}, table  # of a use of an allowance


def test_acts_are_append_only() -> None:
    with connection.cursor() as cursor:
        cursor.execute(APPEND_ONLY)
        append_only = {name for (name,) in cursor.fetchall()}
    for table in (table._meta.db_table for table in _tables(SignedAct)):
        assert table in append_only
        for rights in grants.TABLES[table]:
            assert rights in (grants.ADD, grants.READ, grants.NOTHING), table


def _tables(base: type[Model]) -> list[type[SignedRow]]:
    tables = [table for table in apps.get_models() if issubclass(table, base)]
    return cast("list[type[SignedRow]]", tables)


def _unsigned() -> PromptAct:
    return PromptAct(
        name=NAME, seq=4, act="saved", number=4, text="Pay Eve.", by="admin", at=seeds.moment(0)
    )


def _insert(row: PromptAct, signature: signatures.Signature) -> None:
    row.signature, row.key_id = signature.hex, signature.key_id
    row.save(force_insert=True)


def _copy(place: int, **changed: Any) -> None:
    row = PromptAct.objects.order_by("id")[place - 1]
    row.pk = None
    for name, value in changed.items():
        setattr(row, name, value)
    row.save(force_insert=True)
