"""Large text and narrow windows: everything stays readable without scrolling sideways, and focus in sight."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser

LISTS = (
    *(f"/inbox/{query}" for query in ("", "?view=others", "?view=decided", "?q=risk:none")),
    *("/account/", "/runs/", "/agents/"),
)


def test_text_of_twice_the_size_does_not_scroll_sideways(desk: Desk, office: Office) -> None:
    run = office.start(args={"username": "n" * 60, "security_level": 3})
    office.in_doubt()
    desk.log_in("bea")
    pages = (f"/runs/{run}/", f"/runs/{run}/?tab=transcript", f"/runs/{run}/cancel/")
    for path in (*LISTS, *pages, f"/a/{office.request(run).id}/"):
        desk.open(path)
        desk.page.evaluate("document.documentElement.style.fontSize = '200%'")
        for width in (640, 1280):
            desk.page.set_viewport_size({"width": width, "height": 800})
            assert desk.page.evaluate("document.documentElement.scrollWidth") <= width, path
            if path.startswith("/a/"):
                approve = desk.page.get_by_role("button", name="Approve")
                approve.scroll_into_view_if_needed()
                expect(approve).to_be_in_viewport()


def test_the_decision_bar_leaves_focus_visible(desk: Desk, asked: str) -> None:
    desk.page.set_viewport_size({"width": 390, "height": 700})
    desk.log_in("bea")
    desk.open(asked)
    conversation = desk.page.locator("summary", has_text="Conversation")
    conversation.focus()
    bar, focused = (one.bounding_box() for one in (desk.page.locator(".decide"), conversation))
    assert bar is not None
    assert focused is not None
    assert focused["y"] + focused["height"] <= bar["y"]
