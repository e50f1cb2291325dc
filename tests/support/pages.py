"""What a person does in a browser: reads pages, and sends the forms of requests."""

import json
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from approvals.models import Approval
from approvals.requests import confirmation
from runtime.ports import wiring

Place = str | UUID | Approval


def path_of(place: Place) -> str:
    """The address itself, or that of the page of a run or a request."""
    match place:
        case Approval():
            return f"/a/{place.id}/"
        case UUID():
            return f"/runs/{place}/"
    return place


def text(client: Client, place: Place, status: int = 200, *, live: bool = False) -> str:
    """Open a page, or have an open one ask for its `live` part."""
    headers = {"HX-Request": "true"} if live else {}
    return text_of(client.get(path_of(place), headers=headers), status)


def text_of(answer: Any, status: int = 200) -> str:
    assert answer.status_code == status, answer.status_code
    return str(answer.content.decode())


def has(page: str, *words: str, hides: Collection[str] = ()) -> str:
    """Check that the page has these words and not those, and return it."""
    wrong = [word for word in words if word not in page], [word for word in hides if word in page]
    assert wrong == ([], []), wrong
    return page


def shows(
    client: Client, place: Place, *words: str, hides: Collection[str] = (), status: int = 200
) -> str:
    """Open a page that has these words and not those."""
    return has(text(client, place, status), *words, hides=hides)


def reader_of(browser: Client) -> str | None:
    """The person who is logged in."""
    key = browser.session.get("_auth_user_id")
    return User.objects.get(pk=key).username if key else None


def send(client: Client, approval: Approval, way: str, **form: str) -> Any:
    """Send the form for this way to decide, as the page has it; at high risk that of the second step."""
    edited = json.loads(form["arguments"]) if form.get("arguments", "").startswith("{") else None
    confirm = confirmation.find_required_name(approval, edited)
    form = {"digest": approval.approval_digest, "confirm": confirm or "", **form}
    return client.post(f"/a/{approval.id}/{way}/", form)


def log_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client


def in_order(page: str, *words: str) -> None:
    """Check that the words are on the page, the first occurrence of each after that of the one before."""
    places = [page.index(word) for word in words]
    assert places == sorted(places)


@contextmanager
def queries_at_most(number: int) -> Iterator[None]:
    wiring.resolve_catalogue().read_titles()  # which a process remembers
    with CaptureQueriesContext(connection) as made:
        yield
    assert len(made) <= number, [query["sql"] for query in made]
