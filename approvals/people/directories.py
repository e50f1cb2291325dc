"""Directories: identity providers that create people and groups here with SCIM, each with tokens of its own.

A directory changes only people whom it created. It is the giver of their accounts and rights, and so is each admin who
made a token for it: with the token they could act as any of these people. The command line makes tokens without that.

Its entries are signed, and who is in its groups are signed assignments. So another program that writes to Postgres can
put no person into a group.
"""

import re
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Q

from approvals.models import Assignment, DirectoryEntry, DirectoryToken
from approvals.people import tokens
from approvals.rights import assignments
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.errors import Forbidden, InvalidInput

PERSON, GROUP, DELETED = "User", "Group", "Deleted"
MAX_DAYS = 730
NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PeopleDirectory:
    """A directory with its tokens, the newest first; `makers` made them, or could act as those who did."""

    name: str
    makers: frozenset[str]
    tokens: tuple[DirectoryToken, ...]

    @property
    def giver(self) -> str:
        """Name the directory as the giver of accounts and rights. No username has a blank."""
        return f"{assignments.DIRECTORY}{self.name}"

    def name_membership(self, group: UUID) -> str:
        """Name the assignment that says that a person is in a group of this directory."""
        return f"{self.giver} {group}"

    def group_of(self, membership: Assignment) -> UUID:
        """Return the id of the group in which this assignment puts its person."""
        return UUID(membership.what.removeprefix(f"{self.giver} "))


def find(name: str) -> PeopleDirectory | None:
    """Return the directory with this name; None if it never had a token."""
    rows = DirectoryToken.objects.filter(directory=name).order_by("-created_at")
    signed = tuple(row for row in rows if signed_rows.is_valid(row))
    makers = {
        hand for row in signed if row.by is not None for hand in assignments.list_hands(row.by)
    }
    return PeopleDirectory(name=name, makers=frozenset(makers), tokens=signed) if signed else None


def find_all() -> list[PeopleDirectory]:
    """Return the directories by name."""
    names = DirectoryToken.objects.order_by("directory").values_list("directory", flat=True)
    return [row for name in names.distinct() if (row := find(name)) is not None]


def create_token(name: str, *, days: int, actor: str | None) -> tuple[DirectoryToken, str]:
    """Create a token for a directory, which begins with it; the second value is its plain text, which is not stored.

    Raise InvalidInput naming `name` or `days`.
    """
    if not NAME.fullmatch(name):
        raise InvalidInput(
            "name", "must have 1 to 40 characters: a to z, 0 to 9 and -, beginning with a letter"
        )
    if not 1 <= days <= MAX_DAYS:
        raise InvalidInput("days", f"must be 1 to {MAX_DAYS}")
    token = DirectoryToken(directory=name, by=actor)
    plain = tokens.issue(token, days=days)
    log_change(actor, f"made the token {token.public_id} of the directory {name}")
    return token, plain


def revoke_token(public_id: str, *, actor: str | None) -> None:
    """End a token of a directory for good; a second time changes nothing. Raise UnknownToken."""
    tokens.end_token(DirectoryToken.objects.all(), public_id, actor=actor)


def authenticate(plain: str) -> PeopleDirectory | None:
    """Return the directory that has this token; None if it is unknown, over or unsigned."""
    token = tokens.find_token(DirectoryToken.objects.all(), plain)
    return None if token is None else find(token.directory)


def check_enabling(person: User) -> None:
    """Raise Forbidden if a directory that still has a token disabled or deleted this person: it alone enables them."""
    entry = DirectoryEntry.objects.filter(person=person, attributes__active=False).first()
    directory = None if entry is None else find(entry.directory)
    if directory is not None and any(token.is_valid for token in directory.tokens):
        raise Forbidden("directory", f"The {directory.giver} disabled them, and must enable them.")


def list_memberships(directory: PeopleDirectory, *which: Q, **condition: Any) -> list[Assignment]:
    """Return the assignments that put people into groups of a directory, in the order in which they came."""
    rows = Assignment.objects.filter(*which, what__startswith=f"{directory.giver} ", **condition)
    newest = rows.order_by("what", "person", "-seq").distinct("what", "person")
    present = [row for row in newest.select_related("person") if assignments.is_of(row, row.person)]
    return sorted(present, key=lambda row: row.pk)


def list_signed_entries(directory: PeopleDirectory, **condition: Any) -> list[DirectoryEntry]:
    """Return these entries of a directory by name, without those that another program wrote."""
    rows = DirectoryEntry.objects.filter(directory=directory.name, **condition).order_by("name")
    return [row for row in rows.select_related("person") if signed_rows.is_valid(row)]
