"""If the session ends while a reviewer decides, they log in again and continue with their text."""

import re

import pytest
from playwright.sync_api import Page, expect

from approvals.models import Request
from tests.browser.conftest import Desk
from tests.support.cast import PASSWORD
from tests.support.office import Office

pytestmark = pytest.mark.browser

REASON = "Ask her lead first.\nThen again."


@pytest.fixture
def bea(desk: Desk, office: Office) -> Page:
    desk.page.clock.install()
    desk.log_in("bea")
    return desk.page


def _end_session(page: Page) -> None:
    page.context.clear_cookies(name=re.compile("abeyance_session"))


def _log_in_again(page: Page, name: str = "bea") -> None:
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


@pytest.mark.parametrize("button", ["Approve", "Deny"])
def test_deciding_after_the_session_ended_decides_nothing(
    desk: Desk, bea: Page, asked: str, button: str
) -> None:
    desk.open(asked)
    bea.get_by_role("textbox", name="Reason").fill(REASON)
    _end_session(bea)
    bea.get_by_role("button", name=button).click()
    expect(bea.get_by_text("Nothing was decided or changed")).to_be_visible()
    _log_in_again(bea)
    expect(bea).to_have_url(desk.url + asked)
    expect(bea.get_by_text("Nothing was decided or changed")).to_be_visible()
    expect(bea.get_by_role("textbox", name="Reason")).to_have_value(REASON)
    assert Request.objects.get().status == "pending"
    bea.get_by_role("button", name="Deny").click()
    expect(bea.get_by_role("heading", name="Denied by bea")).to_be_visible()


def test_a_draft_is_kept_for_its_author_alone(desk: Desk, bea: Page, office: Office) -> None:
    run = office.start(requester="admin")
    desk.open(f"/a/{office.request(run).id}/")
    reason = bea.get_by_role("textbox", name="Reason")
    reason.fill(REASON)
    _end_session(bea)
    bea.clock.run_for(4000)  # while she types
    _log_in_again(bea)
    expect(reason).to_have_value(REASON)
    _end_session(bea)
    bea.get_by_role("button", name="Deny").click()
    _log_in_again(bea, "ada")
    expect(bea.get_by_text("Nothing was decided or changed")).to_be_visible()
    expect(reason).to_have_value("")


def test_a_reason_is_still_there_on_going_back(desk: Desk, bea: Page, asked: str) -> None:
    desk.open(asked)
    bea.get_by_role("textbox", name="Reason").fill(REASON)
    # Over https a browser puts nothing back into a page that may not be stored. This is plain http.
    bea.evaluate("for (const form of document.forms) form.autocomplete = 'off'")
    bea.get_by_role("link", name="Runs").click()
    expect(bea.get_by_role("heading", name="Runs")).to_be_visible()
    bea.go_back()
    expect(bea.get_by_role("textbox", name="Reason")).to_have_value(REASON)
    bea.get_by_role("button", name="Log out").click()
    expect(bea.get_by_label("Username")).to_be_visible()
    assert REASON[:9] not in bea.evaluate("JSON.stringify(sessionStorage)")
