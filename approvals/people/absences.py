"""Records when a person is away and who decides in their place, for at most 60 days. Either can end it at once.

Only the person themselves names a deputy, and only one who may decide already. Admins and the command line can end it.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from approvals import clock
from approvals.models import Absence, Approval
from approvals.rights import approval_rights, principals
from approvals.rights.principals import Scope
from approvals.rules import policy
from approvals.signed import audit
from approvals.signed import rows as signed_rows
from approvals.signed.rows import SignedActs
from runtime.control.user_actions import validate_text
from runtime.core.values.limits import MAX_PERSON
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

MAX_DAYS: Final = 60
FIRST: Final = timedelta(days=366)  # how far ahead it may start

_ACTS = SignedActs(Absence, "username")


@dataclass(frozen=True, slots=True, kw_only=True)
class Away:
    """An absence that is not over, with its deputy; `has_begun` says whether the deputy acts now.

    `starts_runs` is told when it is announced: the deputy started runs whose requests the person may decide, so no
    person decides those while this one is away.
    """

    person: str
    deputy: str
    starts: datetime
    ends: datetime
    has_begun: bool
    starts_runs: bool = False


def announce(*, deputy: object, starts: datetime, ends: datetime, actor: Actor) -> Away:
    """Name the deputy of the actor from `starts` until `ends`, in place of an absence before.

    Raises, in this order: Forbidden (`scope`, `not_eligible`); InvalidInput naming `deputy`, `starts` or `ends`.
    """
    with transaction.atomic():
        _lock(actor.person)
        principal = principals.find_principal(actor)
        if principal is None:
            raise Forbidden("not_eligible", "This person may not act.")
        if Scope.APPROVALS_DECIDE not in principal.scopes:
            scope = Scope.APPROVALS_DECIDE
            raise Forbidden("scope", f"This token does not have the scope {scope}.")
        if not policy.list_decidable_risks(principal.groups):
            problem = f"{actor.person} decides nothing that a deputy could decide."
            raise Forbidden("not_eligible", problem)
        now = clock.read_time()
        if ends <= starts:
            raise InvalidInput("ends", "must not be before the start")
        if ends <= now:
            raise InvalidInput("ends", "must not be in the past")
        if ends - starts > principals.LONGEST_ABSENCE:
            raise InvalidInput("ends", f"must be at most {MAX_DAYS} days after the start")
        if starts > now + FIRST:
            raise InvalidInput("starts", "must be at most a year ahead")
        name = _check_deputy(deputy, actor.person, starts, ends)
        row = _ACTS.append(
            Absence.AbsenceChange.SET,
            by=actor.person,
            username=actor.person,
            deputy=name,
            starts=starts,
            ends=ends,
            at=now,
        )
        audit.log_change(actor.person, f"named {name} their deputy until {ends:%Y-%m-%d %H:%M %Z}")
    theirs = Approval.objects.filter(approval_rights.match_for_decider(principal), requester=name)
    return replace(_build_away(row, now), starts_runs=theirs.exists())


def end_absence(person: str, *, actor: Actor | None) -> bool:
    """End an absence at once, and return whether there was one. None is the command line. Raises Forbidden.

    The person, their deputy and admins may.
    """
    with transaction.atomic():
        _lock(person)
        row = _ACTS.read_newest(username=person)
        principal = None if actor is None else principals.find_principal(actor)
        parties = {person} if row is None else {person, row.deputy}
        if actor is not None and (
            principal is None
            or not (principal.has(Scope.ADMIN) or principal.person in parties)
            or Scope.APPROVALS_DECIDE not in principal.scopes
        ):
            raise Forbidden("not_eligible", f"{actor.person} may not end this absence.")
        now = clock.read_time()
        if row is None or row.act != Absence.AbsenceChange.SET or row.ends <= now:
            return False
        by = None if actor is None else actor.person
        _ACTS.append(
            Absence.AbsenceChange.ENDED,
            by=by,
            username=person,
            deputy=row.deputy,
            starts=row.starts,
            ends=row.ends,
            at=now,
        )
        audit.log_change(by, f"ended the absence of {person}, whose deputy was {row.deputy}")
    return True


def list_away() -> tuple[Away, ...]:
    """Return every absence that is not over, by person. Rows that do not verify are left out: they count nowhere."""
    now = clock.read_time()
    rows = Absence.objects.order_by("username", "-seq").distinct("username")
    return tuple(
        _build_away(row, now)
        for row in rows
        if row.act == Absence.AbsenceChange.SET and row.ends > now and signed_rows.is_valid(row)
    )


def list_able_absentees(approval_id: UUID) -> tuple[Away, ...]:
    """Return the absences of people who are away now and could decide this request themselves."""
    approval = Approval.objects.get(pk=approval_id)
    return tuple(
        away
        for away in list_away()
        if away.has_begun
        and approval_rights.find_denial(
            principals.find_principal(Actor(person=away.person)), approval
        )
        is None
    )


def read_absences_of(person: str) -> tuple[Away | None, tuple[Away, ...]]:
    """Return a person's own absence, and those in which they are the deputy."""
    absences = list_away()
    own_absence = next((absence for absence in absences if absence.person == person), None)
    return own_absence, tuple(absence for absence in absences if absence.deputy == person)


def _lock(person: str) -> None:
    """Let two acts on one person's absence happen in turn."""
    list(User.objects.select_for_update(no_key=True).filter(username=person))


def _check_deputy(deputy: object, person: str, starts: datetime, ends: datetime) -> str:
    deputy = validate_text("deputy", deputy, MAX_PERSON, required="must name a person")
    if deputy == person:
        raise InvalidInput("deputy", "must be another person")
    principal = principals.find_principal(Actor(person=deputy))
    if principal is None or not policy.list_decidable_risks(principal.groups):
        raise InvalidInput("deputy", "must be a person who may decide themselves")
    theirs = _ACTS.read_newest(username=deputy)
    is_away = theirs is not None and theirs.act == Absence.AbsenceChange.SET
    if theirs is not None and is_away and theirs.starts < ends and starts < theirs.ends:
        raise InvalidInput("deputy", f"must not be away on these days: {deputy} has a deputy")
    return deputy


def _build_away(row: Absence, now: datetime) -> Away:
    return Away(
        person=row.username,
        deputy=row.deputy,
        starts=row.starts,
        ends=row.ends,
        has_begun=row.starts <= now,
    )
