"""Login and logout, and forms that are sent without a session."""

from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from tests.support.cast import PASSWORD, Cast
from tests.support.office import Office
from tests.support.pages import has, text_of
from tests.web.matrix import ROWS


@pytest.mark.parametrize(
    ("asked_for", "led_to"), [("/runs/", "/runs/"), ("https://elsewhere.example/", "/")]
)
def test_logging_in_never_leads_elsewhere(cast: Cast, asked_for: str, led_to: str) -> None:
    form = {"username": "bea", "password": PASSWORD, "next": asked_for}
    assert Client().post("/login/", form)["Location"] == led_to


def test_the_login_leads_to_the_page_of_the_form(office: Office, suspended: UUID) -> None:
    request = office.request(suspended)
    places = {
        f"/a/{request.id}/approve/": f"/a/{request.id}/",
        f"/a/{request.id}/settle/happened/": f"/a/{request.id}/",
        f"/runs/{suspended}/pause/": f"/runs/{suspended}/",
        f"/runs/{suspended}/fork/1/": f"/runs/{suspended}/fork/1/",
        "/people/cyril/groups/": "/people/",
        "/account/password/": "/account/",
        "/stops/put/": "/stops/",
    }
    for form, page in places.items():
        answer = Client().post(form, {"reason": "because"})
        assert answer["Location"] == f"/login/?next={page}&unsent=1", form
    assert office.request(suspended).status == "pending"
    assert Client().get("/runs/?q=x")["Location"] == "/login/?next=/runs/%3Fq%3Dx"


def test_each_login_after_a_form_says_that_it_was_not_sent(
    places: dict[str, Any], subtests: pytest.Subtests
) -> None:
    form = {"username": "admin", "password": PASSWORD}
    for row in ROWS:
        if row.method == "POST" and row.cells["anon"] == "in" and not row.is_api:
            with subtests.test(row.path):
                client = Client()
                to_login = client.post(row.path.format(**places))["Location"]
                page = client.get(client.post(to_login, form)["Location"])
                has(text_of(page), "You were logged out before this was sent")


def test_an_address_for_forms_has_a_page_of_ours(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = f"/a/{office.request(suspended).id}/"
    answer = bea.get(f"{page}approve/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    has(answer.content.decode(), "Nothing was decided or changed", f'href="{page}"')


@pytest.mark.parametrize(
    "path", ["agents/%s", "agents/%s/start", "contents/%s", "people/%s/groups"]
)
def test_a_nul_in_a_path_is_not_found(path: str, admin: Client) -> None:
    place = f"/{path % '%00'}/"
    for answer in (admin.get(place), admin.post(place)):
        has(text_of(answer, 404), "There is no such page, or you don't have access.")
