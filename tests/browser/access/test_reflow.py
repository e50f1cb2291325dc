"""Large text and narrow windows: everything stays readable without scrolling sideways, and is large enough to touch."""

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Desk, window
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


def test_touch_targets_are_large_enough(desk: Desk, chromium: Browser, office: Office) -> None:
    office.start()
    size = {"width": 360, "height": 780}
    with window(chromium, desk.url, viewport=size, has_touch=True, is_mobile=True) as phone:
        phone.log_in("bea")
        phone.open("/inbox/")
        for target in phone.page.locator("nav a, .search input, .search button, .row").all():
            box = target.bounding_box()
            if box is not None:  # None for elements hidden on a phone
                assert box["height"] >= 44, target.inner_text()
        assert phone.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_a_press_of_print_leaves_the_list_alone(desk: Desk, office: Office) -> None:
    office.start()
    desk.log_in("bea")
    desk.open("/inbox/")
    desk.page.emulate_media(media="print")
    expect(desk.page.get_by_role("link", name="Set the privileges")).to_be_visible()
    for hidden in (".rail", ".search", ".tabs", ".live"):
        expect(desk.page.locator(hidden)).to_be_hidden()
