"""Batches: selecting by keys and without scripts, the sheet, the decision and its undo."""

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from approvals.models import Approval
from tests.browser.conftest import Desk, window
from tests.support.office import Office, reseal

pytestmark = pytest.mark.browser

NUMBER = 6
HIGH = 2  # the place of a request of high risk


@pytest.fixture
def requests(office: Office, settings: Settings) -> list[Approval]:
    settings.SIGNOFF_UNDO_SECONDS = 600
    for place in range(NUMBER):
        office.start(args={"username": f"person{place}", "security_level": 1})
    found = list(Approval.objects.order_by("created_at"))
    reseal([found[HIGH]], risk="high")
    return found


def _statuses() -> list[str]:
    return [approval.status for approval in Approval.objects.order_by("created_at")]


@pytest.mark.parametrize("width", [1440, 1000])
def test_keys_select_rows_that_are_decided_and_undone_together(
    desk: Desk, requests: list[Approval], width: int
) -> None:
    page = desk.page
    desk.log_in("bea")
    desk.look(width, "light")
    desk.open("/inbox/")
    bar = page.get_by_role("button", name="Decide together")
    expect(bar).to_be_hidden()
    first = [] if width > 1180 else ["j"]  # a wide screen shows the first request by itself
    for key in (*first, "x", "j", "j", "j", "Shift+X"):
        page.keyboard.press(key)
    expect(page.get_by_text("4 selected").first).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("x")
    page.keyboard.press("x")
    page.get_by_role("checkbox", name="person5").click(modifiers=["Shift"])
    expect(page.get_by_text("6 selected").first).to_be_visible()
    page.get_by_role("checkbox", name="person0").click()
    page.get_by_role("button", name="all of this kind").click()
    expect(page.get_by_text("6 selected").first).to_be_visible()
    page.locator(".row .t").nth(5).focus()
    page.keyboard.press("x")
    page.keyboard.press("b")
    expect(page.get_by_role("heading", name="Decide together")).to_be_visible()
    expect(page.get_by_text("High risk: rights, money")).to_be_visible()
    page.wait_for_load_state()
    page.keyboard.press("a")  # decides nothing: a batch is approved by its button
    expect(page.get_by_role("button", name="Approve 4")).to_be_focused()
    page.get_by_role("checkbox", name="person1").uncheck()
    page.get_by_role("button", name="Approve 3").click()
    expect(page.get_by_role("heading", name="Approved: 3 of 3")).to_be_visible()
    decided = ["approved", "pending", "pending", "approved", "approved", "pending"]
    assert _statuses() == decided
    page.get_by_role("button", name="Undo all 3").click()
    expect(page.get_by_role("heading", name="Undone: 3 of 3")).to_be_visible()
    assert set(_statuses()) == {"pending"}


def test_without_scripts_boxes_and_buttons_do_the_same(
    chromium: Browser, live_server: LiveServer, requests: list[Approval]
) -> None:
    with window(chromium, live_server.url, java_script_enabled=False) as plain:
        page: Page = plain.page
        plain.log_in("bea")
        plain.open("/inbox/?sort=age")
        for name in ("person0", "person1"):
            page.get_by_role("checkbox", name=name).check()
        page.get_by_role("button", name="Decide together").click()
        page.get_by_role("button", name="Not needed.").click()
        expect(page.get_by_role("heading", name="Denied: 2 of 2")).to_be_visible()
        page.get_by_role("link", name="To the inbox").click()
        page.wait_for_url("**/inbox/?sort=age*")
        assert _statuses()[:3] == ["denied", "denied", "pending"]
