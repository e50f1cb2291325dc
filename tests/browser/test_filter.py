"""Filtering a list while typing: the list follows, the address too, and the page stays live."""

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser


def test_typing_filters_the_inbox_and_keeps_it_live(desk: Desk, office: Office) -> None:
    page = desk.page
    shown = office.start(args={"username": "shown", "security_level": 3})
    office.start(args={"username": "hidden", "security_level": 3})
    page.clock.install()
    desk.log_in("bea")
    desk.open("/inbox/")
    page.evaluate("window.stayed = true")
    page.keyboard.press("/")
    page.keyboard.type("shown")
    page.clock.run_for(400)
    expect(page.get_by_role("link", name="privileges of hidden")).to_have_count(0)
    expect(page.get_by_role("link", name="privileges of shown")).to_be_visible()
    expect(page.get_by_text("Filtered.")).to_be_visible()
    assert page.url.endswith("?q=shown")
    office.start(args={"username": "hidden", "security_level": 1})
    office.approve(shown)
    page.clock.run_for(4000)
    expect(page.locator(".gone")).to_have_count(1)
    expect(page.get_by_role("button", name="new")).to_have_count(0)
    assert page.evaluate("window.stayed") is True
    page.reload()
    expect(page.get_by_role("heading", name="No match")).to_be_visible()


def test_an_invalid_filter_shows_an_error_beside_it(desk: Desk, office: Office) -> None:
    page = desk.page
    office.start()
    page.clock.install()
    desk.log_in("bea")
    desk.open("/inbox/")
    page.get_by_label("Search").fill("risk:none")
    page.clock.run_for(400)
    expect(page.get_by_role("alert")).to_contain_text("must name one of the risks")
    assert [text for text in desk.complaints if "422" not in text] == []


def test_typing_filters_the_list_of_runs(desk: Desk, office: Office) -> None:
    page = desk.page
    office.start(key="shown")
    office.start(key="hidden")
    page.clock.install()
    desk.log_in("bea")
    desk.open("/runs/")
    page.get_by_label("Agent, business key or requester").fill("shown")
    page.clock.run_for(400)
    expect(page.get_by_role("link", name="hidden")).to_have_count(0)
    expect(page.get_by_role("link", name="shown")).to_be_visible()
