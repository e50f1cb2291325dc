"""The audit: Postgres refuses changes, and the chain shows those that get past Postgres."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.models import F
from django.db.models.functions import Left

from approvals.errors import BrokenChain
from approvals.models import AuditEntry, AuditHead
from approvals.port.adapter import ApprovalService
from approvals.signed import audit
from runtime.errors import KeyMissing
from runtime.keyring import purposes, signatures
from runtime.ports.access import Actor
from tests.support import seeds

pytestmark = pytest.mark.django_db


def switch_the_trigger(to: str) -> None:
    """Do what only the owner of the table can."""
    with connection.cursor() as cursor:
        cursor.execute("SET CONSTRAINTS ALL IMMEDIATE")
        cursor.execute(f"ALTER TABLE approvals_auditentry {to} TRIGGER USER")


@pytest.fixture(autouse=True)
def _owner(db: None) -> None:
    """Nothing but the chain protects the rows."""
    switch_the_trigger("DISABLE")


@pytest.fixture
def run() -> UUID:
    """A run with five acts on record."""
    of = seeds.run()
    for n in range(5):
        audit.append(
            run=of,
            actor=Actor(person="bea", token="t1") if n else None,
            act="approved",
            subject=f"request {n}",
            detail={"reason": "because “it’s fine”"},
        )
    return of


def row(run: UUID, seq: int) -> AuditEntry:
    return AuditEntry.objects.get(run=run, seq=seq)


@pytest.mark.parametrize(
    "change",
    [
        lambda rows: rows.update(actor="cyril"),
        lambda rows: rows.update(detail="{}"),
        lambda rows: rows.delete(),
    ],
)
def test_postgres_changes_and_deletes_no_row(run: UUID, change: Callable[[object], object]) -> None:
    switch_the_trigger("ENABLE")
    with pytest.raises(DatabaseError, match="append-only"), transaction.atomic():
        change(AuditEntry.objects.filter(run=run, seq=3))
    again = row(run, 3)
    again.pk = None
    with pytest.raises(DatabaseError, match="audit_order"), transaction.atomic():
        again.save(force_insert=True)
    assert audit.verify(run) == 5


def broken_at(run: UUID) -> int:
    with pytest.raises(BrokenChain) as caught:
        audit.verify(run)
    return caught.value.seq


@pytest.mark.parametrize(
    "changed",
    [
        {"at": F("at") + timedelta(microseconds=1)},
        {"actor": "cyril"},
        {"actor": None},
        {"token": None},
        {"act": "denied"},
        {"subject": "request 7"},
        {"detail": "{}"},
        {"hash": "sha256:other"},
        {"hash": Left("hash", 16)},
        {"hash": ""},
    ],
    ids="-".join,
)
def test_an_edited_column_is_found(run: UUID, changed: dict[str, Any]) -> None:
    AuditEntry.objects.filter(run=run, seq=3).update(**changed)
    assert broken_at(run) == 3


def _drop(run: UUID, seq: int) -> None:
    AuditEntry.objects.filter(run=run, seq=seq).delete()


def _move(run: UUID, *moves: tuple[int, int]) -> None:
    for old, new in moves:
        AuditEntry.objects.filter(run=run, seq=old).update(seq=new)


def _close_a_gap(run: UUID) -> None:
    _drop(run, 3)
    _move(run, (4, 3), (5, 4))


def _link_over(run: UUID) -> None:
    _drop(run, 4)
    forge(run, 5, row(run, 3).hash)


def _take_from_another(run: UUID) -> None:
    other = seeds.run()
    audit.append(run=other, actor=None, act="requested", subject="request", detail={})
    AuditEntry.objects.filter(run=run, seq=1).update(seq=0, run=seeds.run())
    AuditEntry.objects.filter(run=other, seq=1).update(run=run)


@pytest.mark.parametrize(
    ("change", "seq"),
    [
        (lambda run: _drop(run, 1), 1),
        (_close_a_gap, 3),
        (lambda run: _move(run, (2, 9), (3, 2), (9, 3)), 2),
        (_take_from_another, 1),
        (lambda run: forge(run, 3, row(run, 2).hash, actor="cyril"), 3),
        (_link_over, 4),
        (lambda run: rewrite(run, actor="cyril"), 1),
    ],
)
def test_a_chain_that_was_made_anew_without_the_key_is_found(
    run: UUID, change: Callable[[UUID], object], seq: int
) -> None:
    """And any other change of rows, whether they were linked and hashed again or not."""
    assert audit.verify(run) == 5
    change(run)
    assert broken_at(run) == seq


def test_a_chain_without_keys_is_refused(run: UUID) -> None:
    rewrite(run, key_id="")
    with pytest.raises(KeyMissing):
        audit.verify(run)


def test_a_row_with_a_whole_mac_is_refused(run: UUID) -> None:
    entry = row(run, 5)
    seal = signatures.seal(purposes.AUDIT, audit._compute_digest(vars(entry), row(run, 4).hash))
    assert seal.mac.startswith(entry.hash)
    AuditEntry.objects.filter(run=run, seq=5).update(hash=seal.mac)
    assert broken_at(run) == 5


def test_rows_that_were_cut_off_are_missed_at_their_request(bea: Actor) -> None:
    """Also with the count of that time, or without one."""
    approval = seeds.pending()
    counts = AuditHead.objects.filter(run_id=approval.run_id)
    earlier = counts.values().get()
    seeds.decide(approval, bea)
    assert audit.verify(approval.run_id) == 2
    AuditEntry.objects.filter(run=approval.run_id, seq=2).delete()
    counts.update(**earlier)
    assert broken_at(approval.run_id) == 2
    AuditEntry.objects.filter(run=approval.run_id).delete()
    counts.delete()
    assert broken_at(approval.run_id) == 1


@pytest.mark.parametrize("kept", range(5))
def test_rows_that_were_cut_off_are_missed_in_the_count(run: UUID, kept: int) -> None:
    """The acts of this run belong to no request."""
    AuditEntry.objects.filter(run=run, seq__gt=kept).delete()
    assert broken_at(run) == kept + 1


@pytest.mark.parametrize("seq", [0, 3])
def test_a_count_that_was_lowered_is_found(run: UUID, seq: int) -> None:
    AuditEntry.objects.filter(run=run, seq__gt=3).delete()
    AuditHead.objects.filter(run_id=run).update(seq=seq)
    assert broken_at(run) == (3 if seq else 4)


def test_a_count_of_another_run_is_found(run: UUID) -> None:
    other = seeds.run()
    audit.append(run=other, actor=None, act="noted", subject="x", detail={})
    AuditEntry.objects.filter(run=run, seq__gt=1).delete()
    AuditHead.objects.filter(run_id=run).delete()
    AuditHead.objects.filter(run_id=other).update(run_id=run)
    assert broken_at(run) == 1


def test_a_count_that_was_deleted_is_found(run: UUID) -> None:
    AuditHead.objects.filter(run_id=run).delete()
    assert broken_at(run) == 6
    audit.append(run=run, actor=None, act="noted", subject="x", detail={})
    assert broken_at(run) == 7


def test_a_row_after_the_count_is_refused(run: UUID) -> None:
    head = AuditHead.objects.filter(run_id=run).values().get()
    audit.append(run=run, actor=None, act="noted", subject="x", detail={})
    AuditHead.objects.filter(run_id=run).update(**head)
    assert broken_at(run) == 6


def test_an_edited_audit_is_a_finding_of_the_verification(run: UUID) -> None:
    assert ApprovalService().find_audit_problem(run) is None
    forge(run, 3, row(run, 2).hash, actor="cyril")
    assert ApprovalService().find_audit_problem(run) == "row 3 was changed"


def test_what_was_undone_is_counted_for_each_request() -> None:
    of = seeds.run()
    first, other = seeds.opened(seeds.snapshot(of), seeds.snapshot(of))
    for act in ("approved", audit.UNDONE):
        audit.append(run=of, actor=None, act=act, subject=f"request {first.id}", detail={})
    assert (audit.count_undone(first), audit.count_undone(other)) == (1, 0)


def rewrite(run: UUID, **changed: str) -> None:
    """Change every row and link them again, without a count."""
    AuditHead.objects.filter(run_id=run).delete()
    previous = audit.GENESIS
    for seq in range(1, 6):
        forge(run, seq, previous, **changed)
        previous = row(run, seq).hash


def forge(run: UUID, seq: int, previous: str, **changed: str) -> None:
    """Change a row and give it the hash that it should then have, as far as that needs no key."""
    entry = row(run, seq)
    for name, value in changed.items():
        setattr(entry, name, value)
    entry.hash = audit._compute_digest(vars(entry), previous)
    entry.save()
