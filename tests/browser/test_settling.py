"""What goes wrong at the desk: a call in doubt is settled, a run is cancelled, two calls come together."""

import re
from uuid import UUID

import pytest
from playwright.sync_api import expect

from runtime.core.continuation import RunStatus
from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser


def test_bea_reports_the_outcome_of_a_lost_call(desk: Desk, office: Office) -> None:
    run = office.in_doubt()
    desk.log_in("bea")
    desk.open("/inbox/")
    desk.page.get_by_role("link", name="Do send_welcome_mail").click()
    expect(desk.page.get_by_role("heading", name="Did it happen?")).to_be_visible()
    expect(desk.page.get_by_role("button", name="Run it again")).to_be_disabled()
    expect(desk.page.get_by_text("until then the first start may still be running")).to_be_visible()
    result = desk.page.get_by_label(re.compile("^Result"))
    result.fill("it was sent")
    desk.page.get_by_role("button", name="It happened").click()
    expect(desk.page.get_by_text("Not resolved: result is not JSON")).to_be_visible()
    expect(result).to_be_focused()
    expect(result).to_have_value("it was sent")
    result.fill('{"message_id": "m-17"}')
    desk.page.get_by_role("button", name="It happened").click()
    expect(desk.page.get_by_role("heading", name="It happened, as reported by bea")).to_be_visible()
    assert office.advance(run).status == RunStatus.COMPLETED


def test_bea_gives_a_lost_call_up_with_the_keyboard_alone(desk: Desk, office: Office) -> None:
    run = office.in_doubt()
    desk.log_in("bea")
    desk.open(f"/a/{office.in_doubt_request(run).id}/")
    give_up = desk.page.get_by_role("button", name="Give up")
    give_up.focus()
    desk.page.keyboard.press("Enter")
    reason = desk.page.get_by_label("Reason", exact=True)
    expect(reason).to_be_focused()
    desk.page.keyboard.type("No trace found.")
    desk.page.keyboard.press("Tab")
    desk.page.keyboard.press("Enter")
    expect(desk.page.get_by_role("heading", name="Given up by bea")).to_be_visible()


def test_ada_cancels_her_run(desk: Desk, office: Office, suspended: UUID) -> None:
    desk.log_in("ada")
    desk.open(f"/runs/{suspended}/")
    desk.page.get_by_role("link", name="Cancel…").click()
    expect(desk.page.get_by_text("Effects that will not be undone")).to_be_visible()
    cancel = desk.page.get_by_role("button", name="Cancel this run")
    cancel.click()
    reason = desk.page.get_by_label(re.compile(r"Reason \(recorded\)"))
    assert reason.evaluate("field => field.validity.valueMissing")
    reason.fill("New Hire does not come.")
    cancel.click()
    expect(desk.page.get_by_role("heading", name="Being cancelled")).to_be_visible()
    assert office.advance(suspended).status == RunStatus.CANCELLED
    desk.page.reload()
    expect(desk.page.get_by_role("heading", name="Cancelled by ada")).to_be_visible()


def test_bea_denies_with_a_reason(desk: Desk, asked: str) -> None:
    desk.log_in("bea")
    desk.open(asked)
    deny = desk.page.get_by_role("button", name="Deny")
    deny.click()
    reason = desk.page.get_by_role("textbox", name="Reason")
    assert reason.evaluate("field => field.validity.valueMissing")
    reason.fill("Not before Monday.")
    deny.click()
    expect(desk.page.get_by_role("heading", name="Denied by bea")).to_be_visible()


def test_two_clicks_decide_once(desk: Desk, asked: str) -> None:
    desk.log_in("bea")
    desk.open(asked)
    desk.page.get_by_role("button", name="Approve").dblclick()
    expect(desk.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
