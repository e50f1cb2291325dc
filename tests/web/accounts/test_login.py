"""Login and logout; all other pages require a login."""

import re

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.support.cast import PASSWORD, Cast
from tests.support.pages import has, shows, text_of

OPEN = {"login/", "healthz", "readyz", "api/v1/", "^api/"}
SOME_ID = "0192f1c2-0000-7000-8000-000000000000"


def _paths(resolver: URLResolver, before: str = "") -> list[str]:
    found = []
    for pattern in resolver.url_patterns:
        path = before + str(pattern.pattern)
        if isinstance(pattern, URLPattern):
            found.append(path)
        else:
            found += _paths(pattern, path)
    return found


def _every_path() -> list[str]:
    return sorted(set(_paths(get_resolver())))


@pytest.mark.django_db
@pytest.mark.parametrize("path", [path for path in _every_path() if path not in OPEN])
def test_a_stranger_is_sent_away_from(path: str) -> None:
    path = re.sub("<[^>]*>", SOME_ID, re.sub("<int:[^>]*>", "1", path))
    for method in ("get", "post"):
        answer = getattr(Client(), method)(f"/{path}", content_type="application/json")
        if path.startswith("api/") and path != "api/v1/docs":
            assert answer.status_code in (401, 405)
        elif path == "logout/":
            assert answer.status_code in (302, 405)
        else:
            assert answer.status_code == 405 or answer["Location"].startswith("/login/")


@pytest.mark.parametrize(
    ("asked_for", "led_to"), [("/runs/", "/runs/"), ("https://elsewhere.example/", "/")]
)
def test_logging_in_never_leads_elsewhere(cast: Cast, asked_for: str, led_to: str) -> None:
    form = {"username": "bea", "password": PASSWORD, "next": asked_for}
    assert Client().post("/login/", form)["Location"] == led_to


def test_a_wrong_password_is_answered_and_never_comes_back(cast: Cast) -> None:
    answer = Client().post("/login/", {"username": "bea", "password": "wr0ng-secret"})
    has(text_of(answer), "enter a correct username and password", hides=["wr0ng-secret"])


def test_logging_out_takes_a_post(bea: Client) -> None:
    assert bea.get("/logout/").status_code == 405
    assert bea.post("/logout/").status_code == 302
    assert bea.get("/inbox/")["Location"].startswith("/login/")


def test_an_unknown_page_says_nothing_more_than_that(bea: Client) -> None:
    nothing = "There is no such page, or you don't have access."
    shows(bea, "/nowhere/", nothing, status=404)
