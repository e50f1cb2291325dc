"""Open pages without live updates: they poll, follow a filter, and nothing moves under the cursor."""

import re
from uuid import UUID

import pytest
from playwright.sync_api import Browser, Page, expect

from runtime.core.budgets import Budget
from runtime.core.enums import Verdict
from tests.browser.conftest import Desk, window
from tests.support.office import BEA, Office
from tests.support.seeds import decide

pytestmark = pytest.mark.browser

PRIVILEGES = "Set the privileges of newhire to 3"


@pytest.fixture
def bea(desk: Desk, office: Office) -> Page:
    """Her page, whose time a test can make pass."""
    desk.log_in("bea")
    desk.page.clock.install()
    return desk.page


def test_a_decision_appears_in_another_browser_without_reload(
    desk: Desk, bea: Page, chromium: Browser, asked: str
) -> None:
    desk.open("/inbox/")
    bea.evaluate("window.stays = true")
    expect(bea.locator(".live")).to_have_text("Reconnecting…")
    row = bea.locator(".row", has_text=PRIVILEGES)
    place = row.bounding_box()
    with window(chromium, desk.url) as second:
        second.log_in("bea")
        second.open(asked)
        second.page.get_by_role("textbox", name="Reason").fill("Not today.")
        second.page.get_by_role("button", name="Deny").click()
        expect(second.page.get_by_role("heading", name="Denied by bea")).to_be_visible()
    bea.clock.run_for(4000)
    expect(row).to_have_class(re.compile("gone"))
    expect(row).to_contain_text("by bea")
    assert bea.evaluate("window.stays")
    assert row.bounding_box() == place
    expect(bea.locator("[data-count=mine]")).to_have_text("0")
    expect(bea).to_have_title("Inbox · Abeyance")


def test_new_rows_wait_until_they_are_asked_for(desk: Desk, bea: Page, office: Office) -> None:
    desk.open("/inbox/")
    expect(bea.get_by_role("heading", name="You're all caught up")).to_be_visible()
    office.start()
    bea.clock.run_for(4000)
    expect(bea.locator(".row")).to_have_count(1)  # an empty inbox fills by itself
    expect(bea).to_have_title("Inbox (1) · Abeyance")
    bea.keyboard.press("j")
    first = bea.locator(".row").first
    place = first.bounding_box()
    office.start(args={"username": "another", "security_level": 2})
    office.start(args={"username": "third", "security_level": 1})
    bea.clock.run_for(4000)
    expect(bea.get_by_role("button", name="2 new, press . to show")).to_be_visible()
    expect(bea.locator(".row")).to_have_count(1)
    assert first.bounding_box() == place
    bea.keyboard.press(".")
    expect(bea.locator(".row")).to_have_count(3)
    expect(bea.get_by_role("link", name=PRIVILEGES)).to_be_focused()
    expect(bea.get_by_role("button", name="new")).to_have_count(0)


def test_an_untouched_page_asks_once_a_minute_until_its_session_ends(desk: Desk, bea: Page) -> None:
    desk.open("/inbox/")
    for _ in range(3):
        with bea.expect_response(re.compile("known=")):
            bea.clock.run_for(4000)
    with bea.expect_response(re.compile("known=")):
        bea.clock.fast_forward(70_000)
    while bea.evaluate("regions[0].busy"):  # the answer is here; it is being taken in
        bea.clock.run_for(100)
    asked = bea.evaluate("regions[0].asked")
    bea.clock.fast_forward(30_000)
    assert bea.evaluate("regions[0].asked") == asked
    bea.context.clear_cookies()
    with bea.expect_response(re.compile("known=")):
        bea.clock.fast_forward(40_000)
    expect(bea.get_by_role("heading", name="Log in")).to_be_visible()


def test_offline_decisions_are_not_sent_and_it_says_so(desk: Desk, bea: Page, asked: str) -> None:
    desk.open(asked)
    approve = bea.get_by_role("button", name="Approve")
    bea.context.set_offline(True)
    expect(bea.get_by_text("Offline: decisions are not sent")).to_be_visible()
    expect(bea.locator(".live")).to_have_text("Offline")
    expect(approve).to_be_disabled()
    expect(approve).to_have_accessible_description("Offline: decisions are not sent")
    bea.context.set_offline(False)
    expect(approve).to_be_enabled()
    expect(bea.get_by_text("Offline: decisions are not sent")).to_have_count(0)
    # A local server is in reach without a network.
    bea.add_init_script(
        "Object.defineProperty(Navigator.prototype, 'onLine', { get: () => false })"
    )
    bea.reload()
    bea.evaluate("dispatchEvent(new Event('offline'))")
    expect(bea.locator(".live")).to_have_text("Reconnecting…")
    expect(approve).to_be_enabled()


def test_a_decision_elsewhere_keeps_a_typed_reason(
    desk: Desk, bea: Page, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    desk.open(f"/a/{request.id}/")
    reason = bea.get_by_role("textbox", name="Reason")
    reason.fill("I would rather wait for Monday.")
    bea.clock.run_for(4000)
    expect(bea.get_by_role("button", name="This page has changed")).to_have_count(0)
    decide(request, BEA, Verdict.DENY, "Not today.")  # in another of her windows
    bea.clock.run_for(4000)
    told = bea.locator(".note.warn").filter(has_text="This request was closed elsewhere.")
    expect(told).to_be_in_viewport()
    expect(bea.get_by_role("heading", name="Denied by bea")).to_be_in_viewport()
    expect(reason).to_have_value("I would rather wait for Monday.")
    expect(reason).to_be_focused()
    expect(bea.get_by_role("button", name="Approve")).to_be_disabled()
    bea.get_by_role("button", name="Show the request as it is now").click()
    expect(bea.get_by_role("button", name="Approve")).to_have_count(0)
    expect(bea.get_by_text("Your text was not sent:")).to_be_visible()
    expect(bea.get_by_text("I would rather wait for Monday.")).to_be_visible()


def test_a_request_closed_elsewhere_leaves_a_refused_grant_alone(
    desk: Desk, bea: Page, office: Office
) -> None:
    request = office.short(Budget(turns=1))
    desk.open(f"/a/{request.id}/")
    bea.get_by_label("More turns").fill("abc")
    bea.get_by_role("button", name="Allow").click()
    expect(bea.get_by_text("Not decided: more turns must be a number")).to_be_visible()
    office.cancel(request.run_id, "Not needed.")
    bea.clock.run_for(8000)
    expect(bea.get_by_role("heading", name="Cancelled by ada")).to_be_visible()
    expect(bea.get_by_text("Not decided: more turns must be a number")).to_be_visible()
    expect(bea.get_by_label("More turns")).to_have_value("abc")


def test_an_ended_run_removes_the_message_form_unless_used(desk: Desk, office: Office) -> None:
    """The form is outside the refreshed part. The refresh of an ended run has no `data-live`."""
    desk.log_in("ada")
    desk.open(f"/runs/{office.start()}/")
    form = desk.page.get_by_role("region", name="Write to the agent")
    expect(form).to_be_visible()
    desk.page.evaluate("document.getElementById('live').removeAttribute('data-live')")
    expect(form).to_be_hidden()
    form.locator("textarea").evaluate("field => { field.value = 'Wait.' }")
    expect(form).to_be_visible()


def test_typing_filters_the_inbox_and_keeps_it_live(desk: Desk, bea: Page, office: Office) -> None:
    shown = office.start(args={"username": "shown", "security_level": 3})
    office.start(args={"username": "hidden", "security_level": 3})
    desk.open("/inbox/")
    bea.evaluate("window.stayed = true")
    bea.keyboard.press("/")
    field = bea.get_by_label("Search")
    expect(field).to_be_focused()
    bea.keyboard.type("risk:none")
    bea.clock.run_for(400)
    expect(bea.get_by_role("alert")).to_contain_text("must name one of the risks")
    field.fill("shown")
    bea.clock.run_for(400)
    expect(bea.get_by_role("link", name="privileges of hidden")).to_have_count(0)
    expect(bea.get_by_role("link", name="privileges of shown")).to_be_visible()
    expect(bea.get_by_text("Filtered.")).to_be_visible()
    assert bea.url.endswith("?q=shown")
    office.start(args={"username": "hidden", "security_level": 1})
    office.approve(shown)
    bea.clock.run_for(4000)
    expect(bea.locator(".gone")).to_have_count(1)
    expect(bea.get_by_role("button", name="new")).to_have_count(0)
    assert bea.evaluate("window.stayed") is True
    bea.reload()
    expect(bea.get_by_role("heading", name="No match")).to_be_visible()
    assert [text for text in desk.complaints if "422" not in text] == []
