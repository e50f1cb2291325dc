"""The people in the tests: Ada starts runs (and reviews), Bea reviews, Cyril has no right, and the admin."""

from dataclasses import dataclass

from django.contrib.auth.models import User

from approvals.accounts.people import create_person
from approvals.policy import Group

PASSWORD = "correct horse battery staple"

GROUPS: dict[str, tuple[Group, ...]] = {
    "ada": (Group.REQUESTERS, Group.REVIEWERS),  # only four eyes stop her on her own runs
    "bea": (Group.REVIEWERS,),
    "cyril": (),
    "admin": (Group.ADMINS,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cast:
    ada: User
    bea: User
    cyril: User
    admin: User


def assemble() -> Cast:
    """Make everybody, each with PASSWORD."""
    people = {
        name: create_person(username=name, password=PASSWORD, groups=groups)
        for name, groups in GROUPS.items()
    }
    return Cast(**people)
