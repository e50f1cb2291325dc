"""Login and logout; all other pages require a login."""

import re

import pytest
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from tests.support.cast import PASSWORD, Cast

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


def test_logging_in_leads_to_the_page_that_was_asked_for(cast: Cast) -> None:
    form = {"username": "bea", "password": PASSWORD, "next": "/runs/"}
    answer = Client().post("/login/", form)
    assert answer["Location"] == "/runs/"


def test_logging_in_never_leads_elsewhere(cast: Cast) -> None:
    form = {"username": "bea", "password": PASSWORD, "next": "https://elsewhere.example/"}
    assert Client().post("/login/", form)["Location"] == "/"


def test_a_wrong_password_and_an_unknown_name_are_answered_alike(cast: Cast) -> None:
    pages = [
        Client().post("/login/", {"username": name, "password": "wrong"}).content.decode()
        for name in ("bea", "dora")
    ]
    assert "enter a correct username and password" in pages[0]
    assert len({page.count('role="alert"') for page in pages}) == 1


def test_the_password_never_comes_back(cast: Cast) -> None:
    answer = Client().post("/login/", {"username": "bea", "password": "wr0ng-secret"})
    assert "wr0ng-secret" not in answer.content.decode()


def test_logging_out_takes_a_post(bea: Client) -> None:
    assert bea.get("/logout/").status_code == 405
    assert bea.post("/logout/").status_code == 302
    assert bea.get("/inbox/")["Location"].startswith("/login/")


def test_an_unknown_page_says_nothing_more_than_that(bea: Client) -> None:
    answer = bea.get("/nowhere/")
    assert answer.status_code == 404
    assert "There is no such page, or you don't have access." in answer.content.decode()
