"""The main job at the desk: log in, read, decide."""

import re
from uuid import UUID

import pytest
from playwright.sync_api import expect

from runtime.core.continuation import RunStatus
from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser


def test_bea_reads_and_approves(desk: Desk, office: Office, suspended: UUID) -> None:
    desk.log_in_by_form("bea")
    desk.page.get_by_role("link", name="Set the privileges of newhire to 3").click()
    expect(desk.page.get_by_role("heading", name="What will happen")).to_be_visible()
    expect(desk.page.get_by_text("integer · 1 to 5")).to_be_visible()
    desk.page.get_by_role("button", name="Approve").click()
    expect(desk.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert office.advance(suspended).status == RunStatus.COMPLETED
    desk.page.get_by_role("link", name="See the run").click()
    expect(desk.page.get_by_text("New Hire is on board.").first).to_be_visible()


def test_bea_denies_with_a_reason(desk: Desk, office: Office, suspended: UUID) -> None:
    desk.log_in("bea")
    desk.open(f"/a/{office.request(suspended).id}/")
    deny = desk.page.get_by_role("button", name="Deny")
    deny.click()
    reason = desk.page.get_by_label(re.compile("Reason"))
    assert reason.evaluate("field => field.validity.valueMissing")
    reason.fill("Not before Monday.")
    deny.click()
    expect(desk.page.get_by_role("heading", name="Denied by bea")).to_be_visible()
    expect(desk.page.get_by_text("Not before Monday.").first).to_be_visible()


def test_two_clicks_decide_once(desk: Desk, office: Office, suspended: UUID) -> None:
    desk.log_in("bea")
    desk.open(f"/a/{office.request(suspended).id}/")
    desk.page.get_by_role("button", name="Approve").dblclick()
    expect(desk.page.get_by_role("heading", name="Approved by bea")).to_be_visible()


def test_ada_cannot_decide_on_her_own(desk: Desk, office: Office, suspended: UUID) -> None:
    desk.log_in("ada")
    desk.open(f"/a/{office.request(suspended).id}/")
    expect(desk.page.get_by_text("You may read this, but not decide it.")).to_be_visible()
    expect(desk.page.get_by_role("button", name="Approve")).to_have_count(0)


def test_everything_works_with_the_keyboard_alone(
    desk: Desk, office: Office, suspended: UUID
) -> None:
    desk.log_in("bea")
    desk.open("/inbox/")
    desk.page.get_by_role("link", name="Set the privileges of newhire to 3").focus()
    desk.page.keyboard.press("Enter")
    desk.page.get_by_role("button", name="Approve").focus()
    desk.page.keyboard.press("Enter")
    expect(desk.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
