"""A reviewer with a phone, who opens the installed app for the important request and decides it with a thumb."""

import re
import time
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import BrowserContext, Locator, Page

from tests.bench.sides.reviewer import FLAGGED, TYPING

SCREEN: Any = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
AIM = 1.0  # seconds from the sight of a target to the tap on it
ADDRESSES = "rows => rows.map(row => row.getAttribute('href'))"


@dataclass(slots=True)
class Visit:
    """One decision, from the tap that opens the app to its confirmation; the pauses are those of the person."""

    taps: int = 1
    pauses: float = 0.0
    before: int = 0  # rows above the one that is decided
    seconds: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def pause(self, seconds: float) -> None:
        """Do nothing, as a person who reads or aims: this time is a part of the measure."""
        time.sleep(seconds)
        self.pauses += seconds

    def tap(self, target: Locator, after: float = AIM) -> None:
        """Tap a target that is in view, after this time."""
        target.wait_for()
        self.pause(after)
        target.tap()
        self.taps += 1


def use_before(context: BrowserContext) -> None:
    """Open the app once, as it was when it was installed: scripts and styles are then on the phone."""
    page = context.new_page()
    page.goto("/", wait_until="load")
    page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    page.close()


def decide(context: BrowserContext, request: str, *, approve: bool) -> Visit:
    """Open the app, choose its first row, which must be this request, read it and decide it."""
    page, visit = context.new_page(), Visit()
    page.goto("/")  # where the installed app starts
    first = page.locator(".row .t").first
    first.wait_for()
    visit.before = _place(page, request)
    visit.tap(first)
    page.locator(".odds .odd").first.wait_for()
    visit.pause(FLAGGED)
    _approve(page, visit) if approve else _deny(page, visit)
    visit.seconds = time.monotonic() - visit.began
    page.close()
    return visit


def _place(page: Page, request: str) -> int:
    addresses = page.locator(".row .t").evaluate_all(ADDRESSES)
    [place] = [place for place, address in enumerate(addresses) if request in address]
    return place


def _approve(page: Page, visit: Visit) -> None:
    visit.tap(page.get_by_role("button", name="Approve…"), 0)
    yes = page.get_by_role("button", name=re.compile("^Yes, approve: "))
    yes.wait_for()
    visit.tap(yes, TYPING * len(yes.locator("bdi").inner_text()))
    page.locator(".toast", has_text="Approved").wait_for()


def _deny(page: Page, visit: Visit) -> None:
    deny = page.locator(".decide .no .deny")
    visit.tap(deny, 0)
    visit.tap(page.locator("button[name=preset]").first)
    visit.tap(deny)
    page.locator(".toast", has_text="Denied").wait_for()
