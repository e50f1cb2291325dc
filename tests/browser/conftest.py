"""A Chromium that notes everything a strict page must not do, and an office behind the live server."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from playwright.sync_api import Browser, Page, expect, sync_playwright
from pytest_django.live_server_helper import LiveServer

from tests.support.commands import CHROMIUM, FLAGS
from tests.support.office import Office
from tests.support.pages import log_in
from tests.support.stack import Stack

# A route would do the same, but turns the browser's cache off.
NO_STREAM = """window.EventSource = class {
    constructor() { queueMicrotask(() => this.onerror?.()) }
    addEventListener() {}
    close() {}
}"""
expect.set_options(timeout=60_000)  # after that a page has failed


@dataclass(slots=True, kw_only=True)
class Desk:
    """One person's browser window. `complaints` are console errors, `strays` requests to elsewhere."""

    page: Page
    url: str
    complaints: list[str] = field(default_factory=list)
    strays: list[str] = field(default_factory=list)

    def log_in(self, name: str) -> None:
        """Give the window a session of that person alone, as the form does.

        A live page that is still open would notice that its session is over, and go to the login page.
        """
        self.page.goto("about:blank")
        self.page.context.clear_cookies()
        client = log_in(User.objects.get(username=name))
        session = client.cookies[settings.SESSION_COOKIE_NAME].value
        cookie: Any = {"name": settings.SESSION_COOKIE_NAME, "value": session, "url": self.url}
        self.page.context.add_cookies([cookie])

    def open(self, path: str) -> None:
        self.page.goto(self.url + path)

    def look(self, width: int, scheme: str, **media: Any) -> None:
        self.page.set_viewport_size({"width": width, "height": 800})
        self.page.emulate_media(color_scheme="dark" if scheme == "dark" else "light", **media)


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


def unfold(page: Page) -> None:
    """Open all folds, also those of which a page opens one at a time."""
    page.evaluate(
        """document.querySelectorAll('details').forEach(it => {
            it.removeAttribute('name');
            it.open = true;
        })"""
    )


def logged_in(chromium: Browser, stack: Stack, name: str, password: str = "") -> Page:
    """A new window of a person, of the demonstration without a password, logged in by the form."""
    password = password or stack.credentials["users"][name]["password"]
    page = chromium.new_context(base_url=stack.url).new_page()
    page.goto("/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("button", name="Log out")).to_be_visible()
    return page


@contextmanager
def window(chromium: Browser, url: str, **given: Any) -> Iterator[Desk]:
    """A browser window of its own. Nothing streams behind this server: the page goes over to asking."""
    # Routes of a test see no request that a service worker makes.
    context = chromium.new_context(**{"service_workers": "block", **given})
    context.add_init_script(NO_STREAM)
    try:
        yield Desk(page=context.new_page(), url=url)
    finally:
        context.close()


@pytest.fixture(autouse=True)
def _all_answered(request: pytest.FixtureRequest) -> Iterator[None]:
    """After the windows are closed and before the tables are emptied, wait until the server has answered all."""
    if "live_server" not in request.fixturenames:
        yield
        return
    request.getfixturevalue("transactional_db")
    yield
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(60)
            assert not thread.is_alive(), "the server still answers a window that is closed"


@pytest.fixture
def desk(chromium: Browser, live_server: LiveServer) -> Iterator[Desk]:
    home = urlsplit(live_server.url).netloc
    size = {"width": 1280, "height": 860}
    with window(chromium, live_server.url, viewport=size) as desk:

        def hear(message: Any) -> None:
            if message.type == "error":
                desk.complaints.append(message.text)

        def note(request: Any) -> None:
            if urlsplit(request.url).scheme != "data" and urlsplit(request.url).netloc != home:
                desk.strays.append(request.url)

        desk.page.on("pageerror", lambda error: desk.complaints.append(str(error)))
        desk.page.on("console", hear)
        desk.page.on("request", note)
        yield desk


@pytest.fixture
def asked(office: Office, suspended: UUID) -> str:
    """The address of the request for which Ada's run waits."""
    return f"/a/{office.request(suspended).id}/"
