"""Creates the groups that rules of the policy name besides the reviewers, such as `finance`.

Membership gives no right by itself: a member decides only with the right to decide. A group is never deleted, so a
version of the policy that names it can always be read.
"""

import re

from django.contrib.auth.models import Group as GroupRow

from approvals.rules.roles import Group, is_named
from approvals.signed.act_log import record
from runtime.errors import InvalidInput

MAX_GROUPS = 50
NAME = re.compile(r"[a-z][a-z0-9-]{1,39}")


def named() -> list[str]:
    """Return the names of these groups in order."""
    names = GroupRow.objects.exclude(name__in=list(Group)).order_by("name")
    return [name for name in names.values_list("name", flat=True) if is_named(name)]


def create(name: str, *, actor: str | None) -> None:
    """Create a group. None is the command line. The caller holds the lock on people. Raises InvalidInput."""
    if not NAME.fullmatch(name) or not is_named(name):
        raise InvalidInput(
            "group",
            "must have 2 to 40 characters, only a to z, 0 to 9 and -, start with a letter,"
            " and not be the name of a built-in group",
        )
    known = named()
    if name in known:
        raise InvalidInput("group", "exists already")
    if len(known) >= MAX_GROUPS:
        raise InvalidInput("group", f"is one too many: at most {MAX_GROUPS} can be created")
    GroupRow.objects.create(name=name)
    record(actor, f"created the group {name}")
