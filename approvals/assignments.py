"""What people were given, by whom and when: signed rows that are only added to.

Deciding on actions of others is worth what it takes to get the right. An admin who could give it alone, to
a second account of theirs or to themselves, would decide alone. So a right names its giver: it does not count
in runs of that giver, nor before `ABEYANCE_COOLING_OFF_SECONDS` are over, unless a second admin confirmed it.

`givers` of an assignment are the admin who gave it and everybody who had given that admin the right or the
password to do so, unless that was confirmed: an admin who makes another admin acts through them. Two
admins are independent if neither is among the givers of the other. The command line of the installation
gives and confirms without limits, because its operator has the keys.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.contrib.auth.models import User

from approvals import attestation, clock
from approvals.models import Assignment
from approvals.policy import DECIDING, Group

Act = Assignment.Act

CREDENTIAL = "password"  # what is given besides groups

_ACTING = frozenset({Group.ADMINS, CREDENTIAL})  # their giver can act through the person
CONFIRMABLE = _ACTING | DECIDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Bond:
    """The people whose runs a right does not count in: its `givers`; if it was confirmed by `second`, only
    where that admin had a part as well."""

    givers: frozenset[str]
    second: str | None = None

    def binds(self, people: Collection[str]) -> bool:
        """Whether the right does not count in a run that comes from these people."""
        return not self.givers.isdisjoint(people) and (self.second is None or self.second in people)


def in_force(row: Assignment | None) -> bool:
    """Whether this, the latest row, still gives what it names; it may need a second admin before it counts."""
    return row is not None and row.act != Act.ENDED and attestation.holds(row)


def is_of(row: Assignment | None, person: User) -> bool:
    """Whether this, the latest row, still gives it to this person; of a password, the one they have now."""
    return (
        row is not None
        and in_force(row)
        and row.username == person.get_username()
        and row.digest == _digest(person, row.what)
    )


def is_pending(row: Assignment) -> bool:
    """Whether it does not count before a second admin confirms it."""
    return bool(row.needs_second) and row.confirmed_at is None


def bond(row: Assignment) -> Bond | None:
    """In whose runs this does not count; None where it does everywhere."""
    if not row.givers or (row.confirmed_at is not None and row.confirmed_by is None):
        return None
    return Bond(givers=frozenset(row.givers), second=row.confirmed_by)


def cools_until(row: Assignment) -> datetime | None:
    """The end of its cooling-off; None for what the command line gave, or a second admin confirmed."""
    if not row.givers or row.confirmed_at is not None:
        return None
    return row.given_at + timedelta(seconds=float(settings.ABEYANCE_COOLING_OFF_SECONDS))


def latest(people: Iterable[User]) -> dict[tuple[int, str], Assignment]:
    """The latest row of each thing these people were ever given, by the person's key and the thing."""
    rows = Assignment.objects.filter(person__in=people).order_by("person", "what", "-seq")
    return {(row.person_id, row.what): row for row in rows.distinct("person", "what")}


def debts(person: str) -> frozenset[str]:
    """Who gave this person what they act with as an admin, unless it was confirmed."""
    rows = latest(User.objects.filter(username=person)).values()
    return frozenset(
        giver
        for row in rows
        if row.what in _ACTING and in_force(row) and row.confirmed_at is None
        for giver in row.givers
    )


def waits(row: Assignment | None) -> bool:
    """Whether a second admin can add something by confirming this, the latest row."""
    return (
        row is not None
        and row.what in CONFIRMABLE
        and in_force(row)
        and bool(row.givers)
        and row.confirmed_at is None
    )


def is_second(admin: str, owed: Collection[str], row: Assignment) -> bool:
    """Whether this admin, who owes their rights to `owed`, is neither the giver nor the holder of what the row says."""
    return {admin, *owed}.isdisjoint({row.username, *row.givers})


# Writing: the caller holds the lock on people, in a transaction


def give(person: User, what: str, *, actor: str | None, needs_second: bool = False) -> None:
    """Record that `actor` gave a person a group, or the password that they have now. None is the command line."""
    at = clock.now()
    _append(
        person,
        what,
        act=Act.GIVEN,
        by=actor,
        at=at,
        givers=[] if actor is None else [actor, *sorted(debts(actor) - {actor})],
        given_at=at,
        needs_second=needs_second,
        digest=_digest(person, what),
    )


def adopt(person: User, what: str) -> None:
    """Record that a person had something before assignments were recorded."""
    at = clock.now()
    _append(
        person,
        what,
        act=Act.ADOPTED,
        by=None,
        at=at,
        givers=[],
        given_at=at,
        needs_second=False,
        digest=_digest(person, what),
    )


def change_password(row: Assignment, person: User) -> None:
    """Record that a person chose another password. The giver of the one before may have done it in their name."""
    _append(
        person,
        CREDENTIAL,
        act=Act.CHANGED,
        by=person.get_username(),
        at=clock.now(),
        givers=row.givers,
        given_at=row.given_at,
        needs_second=row.needs_second,
        confirmed_by=row.confirmed_by,
        confirmed_at=row.confirmed_at,
        digest=_digest(person, CREDENTIAL),
    )


def password_of(person: User) -> Assignment | None:
    """The row that stands behind the password a person has now; None if it was not set by us."""
    row = latest([person]).get((person.pk, CREDENTIAL))
    return row if is_of(row, person) else None


def end(person: User, what: str, *, actor: str | None) -> None:
    """Record that a person lost what they had. What had ended stays so."""
    row = latest([person]).get((person.pk, what))
    if row is not None and row.act != Act.ENDED:
        _append(
            person,
            what,
            act=Act.ENDED,
            by=actor,
            at=clock.now(),
            givers=row.givers,
            given_at=row.given_at,
            needs_second=False,
        )


def confirm(row: Assignment, *, actor: str | None) -> None:
    """Record that a second admin stands for it as well."""
    at = clock.now()
    _append(
        row.person,
        row.what,
        act=Act.CONFIRMED,
        by=actor,
        at=at,
        givers=row.givers,
        given_at=row.given_at,
        needs_second=row.needs_second,
        confirmed_by=actor,
        confirmed_at=at,
        digest=row.digest,
    )


def _digest(person: User, what: str) -> str | None:
    """Of the password as it is stored."""
    return hashlib.sha256(person.password.encode()).hexdigest() if what == CREDENTIAL else None


def _append(person: User, what: str, **said: object) -> None:
    last = Assignment.objects.filter(person=person, what=what).order_by("-seq").first()
    row = Assignment(
        person=person,
        username=person.get_username(),
        what=what,
        seq=1 if last is None else last.seq + 1,
        **said,
    )
    attestation.sign(row)
    row.save(force_insert=True)
