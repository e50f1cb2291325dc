"""A Chromium that notes everything a strict page must not do, and an office behind the live server."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tests.browser.chromium import CHROMIUM, FLAGS
from tests.support.cast import PASSWORD

expect.set_options(timeout=60_000)  # after that a page has failed


@dataclass(slots=True, kw_only=True)
class Desk:
    """One person's browser window. `complaints` are console errors, `strays` requests to elsewhere."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    def log_in(self, name: str) -> None:
        """Give the window a session of that person, as the form does."""
        client = Client()
        client.force_login(User.objects.get(username=name))
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        cookie: Any = {"name": settings.SESSION_COOKIE_NAME, "value": session, "url": self.url}
        self.page.context.add_cookies([cookie])

    def log_in_by_form(self, name: str) -> None:
        self.open("/login/")
        self.page.get_by_label("Username").fill(name)
        self.page.get_by_label("Password").fill(PASSWORD)
        self.page.get_by_role("button", name="Log in").click()
        self.page.wait_for_url(lambda url: "/login/" not in url)

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """Playwright's loop runs in this thread, where Django would refuse every query."""
    if not CHROMIUM.exists():
        if os.environ.get("CI"):
            pytest.fail(f"there is no browser at {CHROMIUM}")
        pytest.skip(f"there is no browser at {CHROMIUM}")
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def desk(chromium: Browser, live_server: LiveServer) -> Iterator[Desk]:
    context = chromium.new_context(viewport={"width": 1280, "height": 860})
    # Nothing streams behind this server: an answer without content, and the page goes over to asking.
    context.route("**/events/", lambda route: route.fulfill(status=204))
    desk = Desk(page=context.new_page(), url=live_server.url)
    home = urlsplit(live_server.url).netloc
    desk.page.on("pageerror", lambda error: desk.complaints.append(str(error)))
    desk.page.on(
        "console",
        lambda message: desk.complaints.append(message.text) if message.type == "error" else None,
    )
    desk.page.on(
        "request",
        lambda request: (
            desk.strays.append(request.url)
            if urlsplit(request.url).scheme != "data" and urlsplit(request.url).netloc != home
            else None
        ),
    )
    yield desk
    context.close()
