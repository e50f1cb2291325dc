"""A reviewer at the keyboard of a real browser, who reads each request for a while and then decides it.

The reviewer sees the page alone: a request with an odd value is read for longer, and denied with a suggested reason.
"""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client
from playwright.sync_api import BrowserContext, Page, sync_playwright

from tests.support.commands import CHROMIUM, FLAGS

ORDINARY, FLAGGED = 1.0, 4.0  # seconds of reading
TYPING = 0.12  # seconds for each letter of a name or an answer
ANSWER = "12"
# Notes when a key came, which is earlier than this process is back from pressing it.
KEYS = "addEventListener('keydown', (event) => { window.pressedAt = event.timeStamp; }, true)"
# Until the panel shows another request than at that time, can be used, and is drawn.
SHOWN = """
    (last) => new Promise((done) => {
        const since = last ?? pressedAt;
        const drawn = () => requestAnimationFrame(() => setTimeout(() => done(performance.now() - since)));
        const look = () => filledAt > since && !panel.inert ? drawn() : setTimeout(look, 1);
        look();
    })
"""
IS_ODD = "() => Boolean(one('.odds .odd', panel))"
LOADED = "() => performance.getEntriesByType('navigation')[0].loadEventEnd"
AT_LEAST = "() => performance.now() >= filledAt + 1000"  # before that, a key decides nothing


@dataclass(slots=True)
class Clearing:
    """The counts of one clearing: presses and letters of each request, and milliseconds.

    `waits` are those from a decision to the next request, `steps` those to the second step at high risk, `loads` those
    of a page of a request in another tab.
    """

    presses: list[int] = field(default_factory=list)
    letters: list[int] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)
    steps: list[float] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    seconds: float = 0.0


@contextmanager
def browser(url: str, name: str, **screen: Any) -> Iterator[BrowserContext]:
    """A browser with this screen and a session of this person."""
    os.environ["DJANGO_ALLOW_ASYNC_UNSAFE"] = "true"  # Playwright's loop runs in this thread
    client = Client()
    client.force_login(
        User.objects.get(username=name), backend="django.contrib.auth.backends.ModelBackend"
    )
    session = settings.SESSION_COOKIE_NAME
    cookie: Any = {"name": session, "value": client.cookies[session].value, "url": url}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        context = browser.new_context(base_url=url, **screen)
        context.add_cookies([cookie])
        yield context
        browser.close()


def clear(page: Page, other: Page, number: int) -> Clearing:
    """Decide so many requests of the inbox, one after the other, and load pages before and after."""
    found = Clearing()
    page.add_init_script(KEYS)
    page.goto("/inbox/")
    address = page.locator(".row .t").last.get_attribute("href") or ""
    _load(other, address)  # the browser then has the scripts and styles
    found.loads = [_load(other, address) for _ in range(10)]
    page.bring_to_front()
    page.evaluate(SHOWN, 0)
    began = time.monotonic()
    for place in range(number):
        _decide(page, found, is_last=place == number - 1)
    found.seconds = time.monotonic() - began
    found.loads += [_load(other, address) for _ in range(10)]
    return found


def _decide(page: Page, found: Clearing, *, is_last: bool) -> None:
    """Read the request in the panel, and decide it."""
    odd = bool(page.evaluate(IS_ODD))
    # The time in which a person reads is a part of the measure.
    time.sleep(FLAGGED if odd else ORDINARY)
    page.wait_for_function(AT_LEAST)
    letters = ""
    if odd:
        page.keyboard.press("1")
    elif page.locator("#panel [data-answer]").count():
        page.keyboard.press("a")
        letters = ANSWER
    elif page.locator("#panel .decide").get_attribute("data-steps") == "2":
        page.keyboard.press("a")
        found.steps.append(float(page.evaluate(SHOWN)))
        letters = page.locator("#panel label[for=confirm] b").inner_text()
    page.keyboard.type(letters, delay=1000 * TYPING)
    page.keyboard.press("Enter" if odd or letters else "a")
    found.presses.append(2 if odd or letters else 1)
    found.letters.append(len(letters))
    wait = float(page.evaluate(SHOWN))
    if not is_last:  # after the last one the panel shows it itself
        found.waits.append(wait)


def _load(page: Page, address: str) -> float:
    """Load a page of a request; return the milliseconds until its load event has ended."""
    page.goto(address, wait_until="load")
    page.wait_for_function(f"({LOADED})() > 0")
    took = float(page.evaluate(LOADED))
    page.goto("about:blank")  # an open page asks the server for news
    return took
