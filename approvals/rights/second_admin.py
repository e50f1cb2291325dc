"""The rule of two admins: what one of them changes takes effect when a second, independent one confirms it.

Two admins are independent if neither gave the other the right or the password, directly or through other admins. If
an installation has no such admin, the change takes effect a day later, and everyone who may decide can see it until
then. The command line proposes and confirms alone, because its operator has the keys.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.contrib.auth.models import User

from approvals.rights import assignments, principals
from approvals.rules.policy import Group
from runtime.ports.access import Actor

ALONE: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True, kw_only=True)
class SecondAdmin:
    """The admins who may confirm what `author` proposed. None is the command line."""

    author: str | None

    def may_be(self, person: str) -> bool:
        """Tell whether this person is an admin who is independent of the author."""
        return may_administer(Actor(person=person)) and self.is_independent(person)

    def is_independent(self, admin: str) -> bool:
        """Tell whether the admin is independent of the author; of the command line, every admin is."""
        if self.author is None:
            return True
        return assignments.hands(admin).isdisjoint(assignments.hands(self.author))

    def alone_from(self, proposed_at: datetime) -> datetime | None:
        """Return when a proposal takes effect without a second admin; None if there is one to wait for."""
        if self.author is None or self.candidates():
            return None
        return proposed_at + ALONE

    def candidates(self) -> list[str]:
        """Name the admins who could confirm what the author proposes."""
        admins = User.objects.filter(is_active=True, groups__name=Group.ADMINS).order_by("username")
        return [admin.username for admin in admins if self.may_be(admin.username)]


def may_administer(actor: Actor) -> bool:
    """Tell whether the actor is an admin."""
    principal = principals.principal_of(actor)
    return principal is not None and principal.has(principals.Scope.ADMIN)
