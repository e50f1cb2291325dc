"""Mappings: the people in a group of a directory, or of a claim of an OpenID provider, have a right here.

A mapping needs two admins, by the rule of two admins; a day later, its only admin may confirm it alone. Each person in
the group then gets the right at once, and loses it at once. The right names its givers: the source, and who proposed
the mapping. It counts as confirmed by the admin who confirmed the mapping. Mappings are no part of the policy: one
admin alone can end a mapping at once, and each has two admins of its own.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User

from approvals import clock
from approvals.errors import AlreadyTaken, LogBroken, NotConfirmable
from approvals.models import Assignment, DirectoryEntry, DirectoryToken, MappingAct
from approvals.people import accounts, directories
from approvals.people.directories import PeopleDirectory
from approvals.rights import assignments
from approvals.rights.access import ALONE, SecondAdmin
from approvals.rules.identity_providers import IdentityProvider
from approvals.rules.policy import Group
from approvals.signed.audit import log_change
from approvals.signed.rows import SignedLog
from runtime.core.values.json_values import is_text
from runtime.errors import InvalidInput

Act = MappingAct.MappingChange
MAX_VALUE = 200
MAX_MAPPINGS = 100  # of one source
_Key = tuple[str, str]
TimeByGroup = dict[str, datetime | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapping:
    """A mapping of a source. `confirmed_at` is None until it is confirmed; None confirms on the command line."""

    value: str
    right: str
    proposed_by: str | None
    proposed_at: datetime
    confirmed_by: str | None = None
    confirmed_at: datetime | None = None

    @property
    def is_alone(self) -> bool:
        """Whether one admin alone is behind it."""
        return self.proposed_by is not None and self.confirmed_by == self.proposed_by


def _apply(state: dict[_Key, Mapping], row: MappingAct) -> dict[_Key, Mapping]:
    key = (row.value, row.gives)
    match row.act:
        case Act.PROPOSED if key not in state:
            mapping = Mapping(
                value=row.value, right=row.gives, proposed_by=row.by, proposed_at=row.at
            )
            return {**state, key: mapping}
        case Act.CONFIRMED if key in state and state[key].confirmed_at is None:
            return {**state, key: replace(state[key], confirmed_by=row.by, confirmed_at=row.at)}
        case Act.WITHDRAWN if key in state:
            return {other: mapping for other, mapping in state.items() if other != key}
    raise LogBroken(f"act {row.seq} on the mappings of {row.source} follows from none before it")


LOG = SignedLog(
    MappingAct, "source", noun="the mappings of {0.source}", start=lambda source: {}, apply=_apply
)


def find_all(source: str) -> list[Mapping]:
    """Return the mappings of a source, as they were proposed. Raise LogBroken."""
    return list(LOG.read(source=source).values())


def propose(source: str, value: str, right: str, *, actor: str | None) -> None:
    """Propose a mapping. Raise InvalidInput naming `source`, `value` or `right`.

    A right is a group here, or a provider: its subjects are the external ids of the directory.
    """
    provider, is_directory = _find_provider(right), source.startswith(assignments.DIRECTORY)
    shortest, longest = (1, MAX_VALUE) if provider is None else (0, 0)
    if not shortest <= len(value) <= longest or not is_text(value):
        raise InvalidInput("value", f"must have 1 to {MAX_VALUE} characters, for a sign-in none")
    if right not in accounts.list_groups() and (provider is None or not is_directory):
        raise InvalidInput("right", "must be a group, or of a directory a provider of sign-ins")
    if source not in list_sources():
        raise InvalidInput("source", "must be a directory, or a provider with a claim of groups")
    with LOG.hold_lock():
        state = LOG.read(source=source)
        if (value, right) in state:
            raise InvalidInput("value", "is mapped already")
        if len(state) >= MAX_MAPPINGS:
            raise InvalidInput("value", f"is one too many: at most {MAX_MAPPINGS} are mapped")
        _append(Act.PROPOSED, source, value, right, actor)


def confirm(source: str, value: str, right: str, *, actor: str | None) -> None:
    """Confirm a mapping as a second admin: from now on it gives its right. None is the command line.

    Raise NotConfirmable if it does not wait, or the actor is not independent of who proposed it.
    """
    with accounts.lock_people(), LOG.hold_lock():
        mapping = LOG.read(source=source).get((value, right))
        if mapping is None or mapping.confirmed_at is not None:
            raise NotConfirmable("This mapping does not wait for a confirmation.")
        if actor is not None and not may_confirm(mapping, actor):
            raise NotConfirmable(
                "A second admin must confirm this: one who did not get their own right from who proposed it, and did"
                " not give it to them. Without such an admin, any may confirm it a day later."
            )
        _append(Act.CONFIRMED, source, value, right, actor)
        _follow_all(source)


def withdraw(source: str, value: str, right: str, *, actor: str | None) -> None:
    """Withdraw a mapping, which ends its rights at once. Any admin may. Raise NotConfirmable."""
    with accounts.lock_people(), LOG.hold_lock():
        if (value, right) not in LOG.read(source=source):
            raise NotConfirmable("This mapping has ended already.")
        _append(Act.WITHDRAWN, source, value, right, actor)
        _follow_all(source, ended=right)


def may_confirm(mapping: Mapping, admin: str) -> bool:
    """Tell whether this admin may confirm the mapping: a second one, or, without such an admin, a day later any."""
    second = SecondAdmin(author=mapping.proposed_by)
    alone_from = second.compute_lone_start(mapping.proposed_at)
    return second.may_be(admin) or (alone_from is not None and alone_from <= clock.read_time())


def list_sources() -> dict[str, PeopleDirectory | IdentityProvider]:
    """Return the sources of rights by name: directories, then the providers with a claim of groups."""
    origins: list[PeopleDirectory | IdentityProvider] = [*directories.find_all()]
    origins += (provider for provider in settings.SIGNOFF_OIDC.values() if provider.claim)
    return {origin.giver: origin for origin in origins}


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """A person of a source, the groups they are in there, and at providers the `subject`.

    Each group says since when; a provider does not know.
    """

    person: User
    groups: TimeByGroup
    subject: str = ""


def follow(source: str, members: Iterable[Member], makers: Collection[str] = ()) -> None:
    """Give people the rights that a source gives for their groups, and end its other ones.

    A group that an admin took away is given again after the person came into the group there anew, or by a new mapping.
    The caller holds the lock on people. Raise LastAdmin, and AlreadyTaken if another person is this subject.
    """
    confirmed = [mapping for mapping in find_all(source) if mapping.confirmed_at is not None]
    for member in members:
        person = member.person
        rights = dict[str, Mapping]()
        for mapping in confirmed if person.is_active else ():
            provider = _find_provider(mapping.right)
            if provider is None and mapping.value in member.groups:
                rights.setdefault(mapping.right, mapping)
            elif provider is not None and member.subject:
                subject = f"{assignments.SIGN_IN}{provider.issuer} {member.subject}"
                rights.setdefault(subject, mapping)
        rows = {row.what: row for row in assignments.read_latest([person]).values()}
        for right, row in rows.items():
            if right not in rights and _is_given_by(source, row):
                _end_right(person, right, source)
        groups = set(person.groups.values_list("name", flat=True))
        for right, mapping in rights.items():
            is_given = right in groups or right.startswith(assignments.SIGN_IN)
            is_given = is_given and assignments.is_in_force(rows.get(right))
            since = member.groups.get(mapping.value)
            if not is_given and not _is_taken_away(rows.get(right), mapping, since):
                _give(person, right, mapping, source, makers)


def follow_entries(directory: PeopleDirectory, entries: Iterable[DirectoryEntry]) -> None:
    """Give people of a directory the rights of the groups they are in there. Raise what `follow` does."""
    members = {
        entry.person: Member(person=entry.person, groups={}, subject=entry.external_id)
        for entry in entries
        if entry.person is not None
    }
    if not members:
        return
    groups = directories.list_signed_entries(directory, kind=directories.GROUP)
    names = {directory.name_membership(group.pk): group.name for group in groups}
    for row in directories.list_memberships(directory, person__in=members, what__in=names):
        members[row.person].groups[names[row.what]] = row.given_at
    follow(directory.giver, members.values(), directory.makers)


def _follow_all(source: str, ended: str = "") -> None:
    """Apply a change of mappings to the people of a directory. A provider has only its `ended` right taken away.

    It gives rights at the next sign-in, because only then it says who is in which group.
    """
    if isinstance(directory := list_sources().get(source), PeopleDirectory):
        follow_entries(
            directory, directories.list_signed_entries(directory, kind=directories.PERSON)
        )
        return
    for person in User.objects.filter(groups__name=ended):
        row = assignments.read_latest([person]).get((person.pk, ended))
        if row is not None and _is_given_by(source, row):
            _end_right(person, ended, source)


def _end_right(person: User, right: str, source: str) -> None:
    if right == Group.ADMINS:
        accounts.require_other_admin(person, "leave admins")
    assignments.end_right(person, right, actor=source)
    person.groups.remove(*GroupRow.objects.filter(name=right))
    log_change(source, f"took {right} from {person.username}")


def _is_given_by(source: str, row: Assignment) -> bool:
    """Tell whether a source gave this right, by a mapping."""
    is_mapped = row.what in accounts.list_groups() or (
        row.what.startswith(assignments.SIGN_IN) and source.startswith(assignments.DIRECTORY)
    )
    return is_mapped and assignments.is_in_force(row) and row.givers[:1] == [source]


def _is_taken_away(row: Assignment | None, mapping: Mapping, since: datetime | None) -> bool:
    """Tell whether a person took this group away, and neither the mapping nor the membership is newer."""
    if row is None or row.act != Assignment.AssignmentChange.ENDED or row.by in list_sources():
        return False
    assert mapping.confirmed_at is not None  # it gives its right
    is_group = not row.what.startswith(assignments.SIGN_IN)
    return is_group and row.at > max(mapping.confirmed_at, since or mapping.confirmed_at)


def _give(person: User, right: str, mapping: Mapping, source: str, makers: Collection[str]) -> None:
    proposer = mapping.proposed_by
    behind = {*makers, *(assignments.list_hands(proposer) if proposer else ())}
    terms: dict[str, Any] = {"actor": source, "behind": behind}
    if mapping.is_alone:
        terms["needs_second"] = right == Group.ADMINS and len(accounts.list_admins()) > 1
    else:
        terms |= {"confirmed_by": mapping.confirmed_by, "confirmed_at": mapping.confirmed_at}
    if right.startswith(assignments.SIGN_IN):
        # With two people of one subject, neither could sign in.
        if any(holder != person for holder in assignments.list_holders(right)):
            raise AlreadyTaken("external_id", "belongs to another account")
        # Who can sign in as the person has changed, as it does with a new password.
        assignments.grant(person, assignments.CREDENTIAL, actor=source, behind=makers)
    else:
        person.groups.add(GroupRow.objects.get_or_create(name=right)[0])
    assignments.grant(person, right, **terms)
    log_change(source, f"gave {right} to {person.username}")


def _find_provider(right: str) -> IdentityProvider | None:
    providers: Collection[IdentityProvider] = settings.SIGNOFF_OIDC.values()
    return next((provider for provider in providers if provider.giver == right), None)


def _append(act: Act, source: str, value: str, right: str, actor: str | None) -> None:
    LOG.append(act, by=actor, source=source, value=value, gives=right)
    log_change(actor, f"{act} the mapping of {value or 'everybody'} of {source} to {right}")


@dataclass(frozen=True, slots=True, kw_only=True)
class RightsOfSource:
    """A source of rights as admins see it. `groups` has the names of the groups of a directory with their people.

    Each of its `mappings` tells whether the reader may try to confirm it.
    """

    source: str
    mappings: Iterable[tuple[Mapping, bool]]
    tokens: Collection[DirectoryToken] = ()
    people: int = 0
    groups: Iterable[tuple[str, int]] = ()


def list_rights_of_sources(reader: str) -> list[RightsOfSource]:
    """Return the sources for an admin, directories first."""
    old, views = clock.read_time() - ALONE, []
    for source, origin in list_sources().items():
        rows = [
            (row, not row.confirmed_at and (row.proposed_by != reader or row.proposed_at <= old))
            for row in find_all(source)
        ]
        view = RightsOfSource(source=source, mappings=rows)
        if isinstance(origin, PeopleDirectory):
            groups = directories.list_signed_entries(origin, kind=directories.GROUP)
            sizes = Counter(map(origin.group_of, directories.list_memberships(origin)))
            view = replace(
                view,
                tokens=origin.tokens,
                people=len(directories.list_signed_entries(origin, kind=directories.PERSON)),
                groups=[(group.name, sizes[group.pk]) for group in groups],
            )
        views.append(view)
    return views
