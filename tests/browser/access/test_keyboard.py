"""Keyboard shortcuts: the way through the inbox and an approval without a mouse."""

import re
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from approvals.models import Request
from tests.browser.conftest import Desk
from tests.support.office import Office, reseal

pytestmark = pytest.mark.browser


@pytest.fixture
def two(office: Office) -> list[UUID]:
    """Two runs of Ada's, the first of which expires first."""
    return [office.start(), office.start(args={"username": "another", "security_level": 2})]


@pytest.fixture
def bea(desk: Desk, two: list[UUID]) -> Page:
    desk.log_in("bea")
    desk.open("/inbox/")
    return desk.page


def _seen(page: Page) -> None:
    """Wait until the page has been there long enough to be decided by a key."""
    page.wait_for_load_state()
    while page.evaluate("performance.now()") <= 1000:
        pass


def test_j_and_k_move_and_enter_opens(bea: Page) -> None:
    rows = bea.locator(".row .t")
    bea.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    bea.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    expect(bea.locator(".row").nth(1)).to_have_attribute("aria-current", "true")
    bea.keyboard.press("k")
    expect(rows.nth(0)).to_be_focused()
    expect(bea.locator(".row[aria-current]")).to_have_count(1)
    bea.keyboard.press("Enter")
    expect(bea.get_by_role("heading", name="Set the privileges of newhire to 3")).to_be_visible()


def test_a_in_the_inbox_only_shows_and_a_on_the_page_approves(bea: Page) -> None:
    bea.keyboard.press("j")
    bea.keyboard.press("a")
    approve = bea.get_by_role("button", name="Approve")
    expect(approve).to_be_focused()
    assert Request.objects.filter(status="approved").count() == 0
    _seen(bea)
    bea.keyboard.press("a")
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    bea.wait_for_load_state()  # until then keys go nowhere
    bea.keyboard.press("u")
    expect(bea.get_by_role("heading", name="Inbox")).to_be_visible()


def test_a_held_down_decides_nothing(bea: Page) -> None:
    bea.keyboard.press("j")
    bea.keyboard.press("Enter")
    expect(bea.get_by_role("heading", name="What will happen")).to_be_visible()
    _seen(bea)
    bea.evaluate(
        "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'a', repeat: true, bubbles: true}))"
    )
    bea.reload()
    expect(bea.get_by_role("button", name="Approve")).to_be_visible()


def test_at_high_risk_a_goes_to_the_button_and_no_further(
    desk: Desk, bea: Page, two: list[UUID], office: Office
) -> None:
    reseal(Request.objects.all(), risk="high")
    desk.open(f"/a/{office.request(two[0]).id}/")
    _seen(bea)
    bea.keyboard.press("a")
    expect(bea.get_by_role("button", name="Approve")).to_be_focused()
    bea.keyboard.press("a")
    bea.reload()
    expect(bea.get_by_role("button", name="Approve")).to_be_visible()


def test_key_d_focuses_the_reason_where_shortcuts_are_off(bea: Page) -> None:
    bea.keyboard.press("j")
    bea.keyboard.press("d")
    reason = bea.get_by_role("textbox", name="Reason")
    expect(reason).to_be_focused()
    bea.keyboard.type("a bad day, just ask u?")
    expect(reason).to_have_value("a bad day, just ask u?")
    bea.keyboard.press("Tab")
    bea.keyboard.press("Shift+Tab")
    bea.keyboard.press("Shift+Tab")
    bea.keyboard.press("Enter")
    expect(bea.get_by_role("heading", name="Denied by bea")).to_be_visible()


def test_j_and_k_lead_from_one_approval_to_the_next(desk: Desk, bea: Page) -> None:
    bea.keyboard.press("j")
    bea.keyboard.press("Enter")
    expect(bea.get_by_role("heading", name="Set the privileges of newhire to 3")).to_be_visible()
    bea.wait_for_load_state()
    bea.keyboard.press("j")
    expect(bea.get_by_role("heading", name="Set the privileges of another to 2")).to_be_visible()
    bea.wait_for_load_state()
    bea.keyboard.press("k")
    expect(bea.get_by_role("heading", name="Set the privileges of newhire to 3")).to_be_visible()


def test_slash_filters_and_escape_leaves_the_field(bea: Page) -> None:
    bea.keyboard.press("/")
    field = bea.get_by_label("Search")
    expect(field).to_be_focused()
    bea.keyboard.press("Escape")
    expect(field).not_to_be_focused()
    bea.keyboard.press("/")
    bea.keyboard.type("another")
    bea.keyboard.press("Enter")
    expect(bea.locator(".row")).to_have_count(1)
    expect(bea).to_have_url(re.compile(r"q=another"))


def test_the_key_sheet_opens_and_blocks_other_shortcuts(bea: Page) -> None:
    bea.keyboard.press("?")
    sheet = bea.get_by_role("dialog", name="Shortcuts")
    expect(sheet).to_be_visible()
    bea.keyboard.press("j")
    expect(bea.locator(".row[aria-current]")).to_have_count(0)
    bea.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    bea.get_by_role("button", name="Shortcuts").click()
    expect(sheet).to_be_visible()


def test_keys_can_be_switched_off_and_stay_off(bea: Page) -> None:
    bea.get_by_role("button", name="Shortcuts").click()
    bea.get_by_role("dialog").get_by_label("Keyboard shortcuts").select_option("off")
    bea.reload()
    bea.keyboard.press("j")
    expect(bea.locator(".row[aria-current]")).to_have_count(0)
    bea.keyboard.press("?")
    expect(bea.get_by_role("dialog")).to_be_hidden()


def test_a_key_with_a_modifier_is_left_to_the_browser(bea: Page) -> None:
    for key in ("Control+j", "Alt+j", "Meta+j"):
        bea.keyboard.press(key)
    expect(bea.locator(".row[aria-current]")).to_have_count(0)


def test_chosen_colours_are_there_from_the_start(bea: Page) -> None:
    bea.get_by_role("button", name="Shortcuts").click()
    bea.get_by_role("dialog").get_by_label("Theme").select_option("dark")
    expect(bea.locator("html")).to_have_attribute("data-theme", "dark")
    bea.reload()
    expect(bea.locator("html")).to_have_attribute("data-theme", "dark")
    expect(bea.locator("body")).to_have_css("background-color", "rgb(15, 20, 25)")
