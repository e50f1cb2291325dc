"""Records who gave people their groups and passwords, and when, in signed rows that are never changed.

If one admin alone could give the right to decide, to a second account or to themselves, four eyes would be two. So a
right names its givers. Unless a second admin confirmed it, it does not count in runs whose origin includes one of
them, nor before `SIGNOFF_COOLING_OFF_SECONDS` are over.

The `givers` of an assignment are the admin who gave it and the givers of that admin's own right and password, unless
those were confirmed. An admin who makes another admin can act through them. Two admins are independent if neither is
among the givers of the other. The command line gives and confirms without limits, because its operator has the keys.
"""

import hashlib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User

from approvals import clock
from approvals.models import Assignment
from approvals.rules.policy import DECIDING, Group, is_named
from approvals.signed import rows as signed_rows
from approvals.signed.rows import SignedActs

Act = Assignment.AssignmentChange

_ACTS = SignedActs(Assignment, "person", "what")

CREDENTIAL = "password"  # an admin can give a password besides groups
SIGN_IN = "oidc "  # then issuer and subject: who signs in there is the person
DIRECTORY = "directory "  # then its name and the id of a group there: the person is in it

_ACTING = frozenset({Group.ADMINS, CREDENTIAL})  # their giver can act through the person


@dataclass(frozen=True, slots=True, kw_only=True)
class Bond:
    """The limits of a right: it does not count in runs whose origin includes one of its `givers`.

    If the admin `second` confirmed it, it does not count only where the origin includes that admin as well.
    """

    givers: frozenset[str]
    second: str | None = None

    def is_bound(self, people: Collection[str]) -> bool:
        """Tell whether the right does not count in a run with these people in its origin."""
        return not self.givers.isdisjoint(people) and (self.second is None or self.second in people)


def is_in_force(row: Assignment | None, text: str | None = None) -> bool:
    """Tell whether this latest row still gives its right, which may yet need a second admin. `text`: see `is_valid`."""
    return row is not None and row.act != Act.ENDED and signed_rows.is_valid(row, text)


def is_of(row: Assignment | None, person: User) -> bool:
    """Tell whether this latest row still gives its right to this person; for a password, to the present one."""
    return (
        row is not None
        and is_in_force(row)
        and row.username == person.get_username()
        and row.digest == _compute_digest(person, row.what)
    )


def is_confirmable(right: str) -> bool:
    """Tell whether a second admin can confirm this right: all but the right to start runs."""
    is_record = right.startswith((SIGN_IN, DIRECTORY))
    return right in _ACTING | DECIDING or (is_named(right) and not is_record)


def is_pending(row: Assignment) -> bool:
    """Tell whether a second admin must confirm the right before it counts."""
    return bool(row.needs_second) and row.confirmed_at is None


def find_bond(row: Assignment) -> Bond | None:
    """Return the limits of this right; None if it counts in every run."""
    if not row.givers or (row.confirmed_at is not None and row.confirmed_by is None):
        return None
    return Bond(givers=frozenset(row.givers), second=row.confirmed_by)


def find_cooling_end(row: Assignment) -> datetime | None:
    """Return the end of its cooling-off period; None if the command line gave it or a second admin confirmed it."""
    if not row.givers or row.confirmed_at is not None:
        return None
    return row.given_at + timedelta(seconds=float(settings.SIGNOFF_COOLING_OFF_SECONDS))


def list_holders(right: str) -> list[User]:
    """Return the people who have this right now."""
    rows = Assignment.objects.filter(what=right).select_related("person")
    newest = rows.order_by("person", "-seq").distinct("person")
    return [row.person for row in newest if is_of(row, row.person)]


def read_latest(people: Iterable[User]) -> dict[tuple[int, str], Assignment]:
    """Return the latest row of each right these people ever had, by person's key and right."""
    rows = Assignment.objects.filter(person__in=people).order_by("person", "what", "-seq")
    return {(row.person_id, row.what): row for row in rows.distinct("person", "what")}


def sign_ins(person: User) -> list[Assignment]:
    """Return the sign-ins at providers that are this person's."""
    rows = read_latest([person]).values()
    return [row for row in rows if row.what.startswith(SIGN_IN) and is_of(row, person)]


def list_debts(person: str) -> frozenset[str]:
    """Name the givers of this person's admin right and password, unless those were confirmed."""
    rows = read_latest(User.objects.filter(username=person)).values()
    return frozenset(
        giver
        for row in rows
        if row.what in _ACTING and is_in_force(row) and row.confirmed_at is None
        for giver in row.givers
    )


def list_hands(person: str) -> frozenset[str]:
    """Name the people who can act as this person: they themselves, and the givers of their right and password."""
    return frozenset({person, *list_debts(person)})


def may_be_confirmed(row: Assignment | None) -> bool:
    """Tell whether this latest row can still be confirmed by a second admin."""
    return (
        row is not None
        and is_confirmable(row.what)
        and is_in_force(row)
        and bool(row.givers)
        and row.confirmed_at is None
    )


def is_second(admin: Collection[str], row: Assignment) -> bool:
    """Tell if an admin is independent of the row: none of their `list_hands` gave or holds the right."""
    return {row.username, *row.givers}.isdisjoint(admin)


# Writing: the caller holds the lock on people, in a transaction


def grant(
    person: User,
    right: str,
    *,
    actor: str | None,
    needs_second: bool = False,
    behind: Collection[str] = (),
    **confirmation: Any,
) -> None:
    """Record that `actor` gave a person a group, or their present password. None is the command line.

    `behind` names further givers, of whom a directory has its rights; `confirmation` is that of its mapping.
    """
    at = clock.read_time()
    _append(
        person,
        right,
        Act.GIVEN,
        by=actor,
        at=at,
        givers=[] if actor is None else [actor, *sorted({*list_debts(actor), *behind} - {actor})],
        given_at=at,
        needs_second=needs_second,
        digest=_compute_digest(person, right),
        **confirmation,
    )


def change_password(row: Assignment, person: User) -> None:
    """Record that a person changed their password. It keeps its giver, who knew the old one and may have done it."""
    _append_after(
        row,
        person,
        Act.CHANGED,
        by=person.get_username(),
        digest=_compute_digest(person, CREDENTIAL),
    )


def find_password_row(person: User) -> Assignment | None:
    """Return the row of a person's present password; None if the password was not set through this module."""
    row = read_latest([person]).get((person.pk, CREDENTIAL))
    return row if is_of(row, person) else None


def end_sign_ins(person: User, *, actor: str | None, since: datetime | None = None) -> None:
    """End a person's sign-ins at providers, only those given since a time if one is named."""
    for row in sign_ins(person):
        if since is None or row.given_at >= since:
            end_right(person, row.what, actor=actor)


def end_right(person: User, right: str, *, actor: str | None) -> None:
    """Record that a person lost a right. Does nothing if it had ended already."""
    row = read_latest([person]).get((person.pk, right))
    if row is not None and row.act != Act.ENDED:
        _append_after(row, person, Act.ENDED, by=actor, needs_second=False)


def confirm(row: Assignment, *, actor: str | None) -> None:
    """Record that a second admin confirms a right. None is the command line."""
    at = clock.read_time()
    _append_after(
        row, row.person, Act.CONFIRMED, by=actor, at=at, confirmed_by=actor, confirmed_at=at
    )


def _compute_digest(person: User, right: str) -> str | None:
    """Return the digest of the stored password hash; None for a group."""
    return hashlib.sha256(person.password.encode()).hexdigest() if right == CREDENTIAL else None


def _append_after(row: Assignment, person: User, act: Act, **changes: Any) -> None:
    """Record an act that leaves the rest of the right as it was."""
    unchanged = ("givers", "given_at", "needs_second", "confirmed_by", "confirmed_at", "digest")
    _append(person, row.what, act, **{name: getattr(row, name) for name in unchanged} | changes)


def _append(person: User, right: str, act: Act, **values: Any) -> None:
    _ACTS.append(act, person=person, username=person.get_username(), what=right, **values)
