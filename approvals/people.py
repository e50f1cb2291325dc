"""Making people: users of django.contrib.auth, whose rights come from their groups."""

from collections.abc import Collection

from django.contrib.auth.models import Group as GroupRow
from django.contrib.auth.models import User
from django.db import transaction

from approvals.errors import Invalid
from approvals.policy import Group


def create_person(*, username: str, password: str, groups: Collection[Group]) -> User:
    """A new person in these groups. Raises Invalid naming `username` if it is taken.

    The name must be new in any case, because people read names and the requester rule compares them.
    """
    with transaction.atomic():
        if User.objects.filter(username__iexact=username).exists():
            raise Invalid("username", "is taken")
        person = User.objects.create_user(username=username, password=password)
        person.groups.set([GroupRow.objects.get_or_create(name=group)[0] for group in groups])
    return person
