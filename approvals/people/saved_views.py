"""Saved views: a person's own names for a list of requests or of runs with its filters and order."""

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from django.contrib.auth.models import User
from django.db import transaction

from approvals.models import SavedView
from runtime.errors import InvalidInput

MAX_VIEWS = 20  # for each person
MAX_NAME = 40
INBOX = "inbox"
RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """A view of a person, with the parameters of the list."""

    id: UUID
    name: str
    place: Mapping[str, str]


def of(username: str, page: str = INBOX) -> tuple[Saved, ...]:
    """Return a person's views of a page by name."""
    rows = SavedView.objects.filter(owner__username=username, page=page).order_by("name")
    return tuple(Saved(id=row.id, name=row.name, place=row.place) for row in rows)


@transaction.atomic
def save(username: str, name: str, place: Mapping[str, str], page: str = INBOX) -> SavedView:
    """Save the parameters of a list under a name, in place of a view of that name of the same page.

    Raise InvalidInput naming `name`.
    """
    name = name.strip()
    if not 0 < len(name) <= MAX_NAME or not name.isprintable():
        raise InvalidInput("name", f"must have 1 to {MAX_NAME} visible characters")
    owner = User.objects.select_for_update().get(username=username)  # two at once count correctly
    views = SavedView.objects.filter(owner=owner)
    if views.exclude(name=name).count() >= MAX_VIEWS:
        raise InvalidInput(
            "name", f"cannot be added: you have {MAX_VIEWS} views already; delete one first"
        )
    if views.filter(name=name).exclude(page=page).exists():
        raise InvalidInput("name", "is that of a view of another page; choose another name")
    return SavedView.objects.update_or_create(
        owner=owner, name=name, defaults={"place": dict(place), "page": page}
    )[0]


def delete(username: str, view: UUID) -> None:
    """Delete a view of a person. Deleting it again has no effect."""
    SavedView.objects.filter(owner__username=username, id=view).delete()
