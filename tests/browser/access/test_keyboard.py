"""The way through the inbox and an approval without a mouse, and without scripts."""

from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from approvals.models import Approval
from tests.approvals.policies.office import put_in_force
from tests.browser.conftest import Desk, window
from tests.support.office import Office, reseal
from tests.support.seeds import PASSWORD

pytestmark = pytest.mark.browser

FIRST, SECOND = "Set the privileges of newhire to 3", "Set the privileges of another to 2"


@pytest.fixture
def two(office: Office) -> list[UUID]:
    """Two runs of Ada's, the first of which expires first."""
    return [office.start(), office.start(args={"username": "another", "security_level": 2})]


@pytest.fixture
def bea(desk: Desk, two: list[UUID]) -> Page:
    desk.log_in("bea")
    desk.look(1100, "light")  # too narrow for the split view
    desk.open("/inbox/")
    return desk.page


def _shows(page: Page, heading: str) -> None:
    """Wait for a page and its script; until then keys go nowhere."""
    expect(page.get_by_role("heading", name=heading)).to_be_visible()
    page.wait_for_load_state()


def _seen(page: Page) -> None:
    """Wait until the page has been there long enough to be decided by a key."""
    page.wait_for_load_state()
    while page.evaluate("performance.now() <= filledAt + 1000"):
        pass


def test_j_and_k_move_and_enter_opens(bea: Page) -> None:
    rows = bea.locator(".row .t")
    for key in ("Control+j", "Alt+j", "Meta+j"):  # which are left to the browser
        bea.keyboard.press(key)
    expect(bea.locator(".row[aria-current]")).to_have_count(0)
    bea.keyboard.press("j")
    expect(rows.nth(0)).to_be_focused()
    bea.keyboard.press("ArrowDown")
    expect(rows.nth(1)).to_be_focused()
    expect(bea.locator(".row").nth(1)).to_have_attribute("aria-current", "true")
    bea.keyboard.press("k")
    expect(rows.nth(0)).to_be_focused()
    expect(bea.locator(".row[aria-current]")).to_have_count(1)
    bea.keyboard.press("Enter")
    _shows(bea, FIRST)
    bea.keyboard.press("j")
    _shows(bea, SECOND)
    bea.keyboard.press("k")
    _shows(bea, FIRST)


def test_a_in_the_inbox_only_shows_and_a_on_the_page_approves(bea: Page) -> None:
    bea.keyboard.press("j")
    bea.keyboard.press("a")
    approve = bea.get_by_role("button", name="Approve")
    expect(approve).to_be_focused()
    assert Approval.objects.filter(status="approved").count() == 0
    _seen(bea)
    held = "new KeyboardEvent('keydown', {key: 'a', repeat: true, bubbles: true})"
    bea.evaluate(f"document.dispatchEvent({held})")
    bea.reload()
    expect(approve).to_be_visible()
    _seen(bea)
    bea.keyboard.press("a")
    _shows(bea, SECOND)
    expect(bea.locator(".toast")).to_contain_text(f"Approved: {FIRST}")
    bea.keyboard.press("u")
    _shows(bea, "Inbox")


def test_a_denial_says_what_the_agent_receives_and_asks_for_a_reason(bea: Page) -> None:
    bea.get_by_role("link", name=FIRST).click()
    _shows(bea, FIRST)
    deny, reason = bea.get_by_role("button", name="Deny"), bea.get_by_role("textbox", name="Remark")
    deny.click()
    expect(reason).to_be_focused()
    deny.click()
    expect(bea.get_by_role("alert")).to_have_text("Not decided: write a remark first.")
    expect(reason).to_be_focused()
    bea.get_by_role("button", name="Not needed.").click()
    expect(bea.get_by_role("alert")).to_have_count(0)
    expect(reason).to_have_value("Not needed. Continue without it.")
    reason.fill("She left.")
    told = "A person denied this call, it was not made. The reason given: She left."
    expect(bea.locator(".decide .told.denies")).to_contain_text(told)
    bea.keyboard.press("Control+Enter")
    _shows(bea, SECOND)
    assert Approval.objects.get(status="denied").reason == "She left."


def test_a_reason_that_an_approval_needs_is_typed_and_sent_by_keys(
    desk: Desk, office: Office
) -> None:
    put_in_force("rules: [{name: Say why, reason: required}]")
    approval = Approval.objects.get(run=office.start())
    desk.log_in("bea")
    desk.open(f"/a/{approval.id}/")
    _seen(desk.page)
    desk.page.keyboard.press("a")
    reason = desk.page.get_by_role("textbox", name="Reason (required by rule")
    expect(reason).to_be_focused()
    desk.page.keyboard.type("bad day: ask")
    expect(reason).to_have_value("bad day: ask")
    desk.page.keyboard.press("Control+Enter")
    expect(desk.page.locator(".toast")).to_contain_text("Approved")
    approval.refresh_from_db()
    assert (approval.status, approval.reason) == ("approved", "bad day: ask")


def test_key_e_opens_the_form_of_an_edit(bea: Page) -> None:
    bea.get_by_role("link", name=FIRST).click()
    bea.wait_for_load_state()
    bea.keyboard.press("e")
    bea.get_by_label("security_level").fill("1")
    bea.get_by_role("button", name="Show the changes").click()
    approve = bea.get_by_role("button", name="Approve with 1 change")
    expect(approve).to_be_visible()
    _seen(bea)
    approve.click()
    _shows(bea, SECOND)
    assert Approval.objects.get(status="approved").edited


def test_the_key_sheet_blocks_shortcuts_and_keeps_settings(bea: Page) -> None:
    bea.keyboard.press("/")
    bea.keyboard.press("Escape")
    expect(bea.get_by_label("Search")).not_to_be_focused()
    bea.keyboard.press("?")
    sheet = bea.get_by_role("dialog", name="Shortcuts")
    expect(sheet).to_be_visible()
    bea.keyboard.press("j")
    expect(bea.locator(".row[aria-current]")).to_have_count(0)
    bea.keyboard.press("Escape")
    expect(sheet).to_be_hidden()
    bea.get_by_role("button", name="Shortcuts").click()
    sheet.get_by_label("Theme").select_option("dark")
    sheet.get_by_label("Keyboard shortcuts").select_option("off")
    bea.reload()
    expect(bea.locator("html")).to_have_attribute("data-theme", "dark")
    bea.keyboard.press("j")
    expect(bea.locator(".row[aria-current]")).to_have_count(0)
    bea.keyboard.press("?")
    expect(sheet).to_be_hidden()


# Without scripts: plain links, plain forms


def test_without_scripts_bea_logs_in_filters_and_decides(
    chromium: Browser, live_server: LiveServer, office: Office, suspended: UUID
) -> None:
    office.start(args={"username": "another", "security_level": 2})
    with window(chromium, live_server.url, java_script_enabled=False) as plain:
        page = plain.page
        plain.open("/login/")
        page.get_by_label("Username").fill("bea")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("button", name="Shortcuts")).to_have_count(0)
        page.get_by_role("link", name="History").click()
        expect(page.get_by_role("heading", name="No decisions")).to_be_visible()
        plain.open("/inbox/")
        page.get_by_label("Search").fill("another")
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".row")).to_have_count(1)
        expect(page.get_by_label("Search")).to_have_value("another")
        page.get_by_role("link", name="Clear", exact=True).click()
        expect(page.locator(".row")).to_have_count(2)
        page.get_by_role("link", name="Set the privileges of newhire to 3").click()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("heading", name=SECOND)).to_be_visible()
        page.get_by_role("textbox", name="Remark").fill("Not before Monday.")
        page.get_by_role("button", name="Deny").click()
        expect(page.get_by_role("heading", name="Denied by bea")).to_be_visible()


# Several requests


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
