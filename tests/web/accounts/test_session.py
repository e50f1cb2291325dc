"""Forms sent after the session has ended, and addresses that only accept forms."""

import re
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.support.cast import PASSWORD, Cast
from tests.support.office import Office
from tests.support.pages import has, log_in, text_of

SOME_ID = "0192f1c2-0000-7000-8000-000000000000"


def _paths(patterns: list[Any], before: str = "") -> list[str]:
    found = []
    for pattern in patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            found += _paths(pattern.url_patterns, path)
        elif isinstance(pattern, URLPattern) and not path.startswith(("api", "^api")):
            found.append(re.sub("<[^>]*>", SOME_ID, re.sub("<int:[^>]*>", "1", path)))
    return sorted(set(found))


@pytest.mark.django_db
@pytest.mark.parametrize("path", _paths(get_resolver().url_patterns))
def test_no_post_is_where_the_login_leads(path: str, cast: Cast) -> None:
    answer = Client().post(f"/{path}")
    if answer.status_code != 302 or not answer["Location"].startswith("/login/?"):
        return
    form = {"username": "admin", "password": PASSWORD}
    client = Client()
    after = client.post(answer["Location"], form)
    page = client.get(after["Location"])
    assert page.status_code in (200, 302, 404), after["Location"]
    if page.status_code == 200:
        assert "You were logged out before this was sent" in page.content.decode()


@pytest.mark.django_db
@pytest.mark.parametrize(
    "path",
    ["agents", "agents/%s/start", "contents", "account/tokens/%s/revoke", "people/%s/groups"],
)
def test_a_nul_in_a_path_is_not_found(path: str, cast: Cast) -> None:
    client = log_in(cast.admin)
    place = "/" + (path if "%s" in path else path + "/%s") % "%00" + "/"
    for answer in (client.get(place), client.post(place)):
        has(text_of(answer, 404), "There is no such page")


def test_the_login_leads_to_the_page_of_the_form(office: Office, suspended: UUID) -> None:
    request = office.request(suspended)
    places = {
        f"/a/{request.id}/approve/": f"/a/{request.id}/",
        f"/a/{request.id}/settle/happened/": f"/a/{request.id}/",
        f"/runs/{suspended}/pause/": f"/runs/{suspended}/",
        f"/runs/{suspended}/fork/1/": f"/runs/{suspended}/fork/1/",
        "/people/cyril/groups/": "/people/",
        "/agents/hr_onboarding/start/": "/agents/hr_onboarding/start/",
        "/account/password/": "/account/",
        "/stops/put/": "/stops/",
    }
    for form, page in places.items():
        answer = Client().post(form, {"reason": "because"})
        assert answer["Location"] == f"/login/?next={page}&unsent=1", form
    assert office.request(suspended).status == "pending"


def test_a_page_is_asked_for_again_as_it_was() -> None:
    assert Client().get("/runs/?q=x")["Location"] == "/login/?next=/runs/%3Fq%3Dx"


def test_an_address_for_forms_has_a_page_of_ours(
    bea: Client, office: Office, suspended: UUID
) -> None:
    page = f"/a/{office.request(suspended).id}/"
    answer = bea.get(f"{page}approve/")
    assert (answer.status_code, answer["Allow"]) == (405, "POST")
    has(answer.content.decode(), "Nothing was decided or changed", f'href="{page}"')


def test_the_api_answers_a_wrong_method_as_json(bea: Client) -> None:
    assert "Nothing was done" not in bea.delete("/api/v1/runs").content.decode()
