"""What time does to an open page: deadlines run down and are said, decisions are sent once and confirmed."""

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from approvals.models import Request
from tests.browser.conftest import Desk, window
from tests.support.office import Office, reseal

pytestmark = pytest.mark.browser


@pytest.fixture
def bea(desk: Desk, office: Office, suspended: UUID) -> Page:
    """Her inbox, on a machine whose clock is wrong, with something that expires in a little more than five minutes."""
    at = timezone.now() + timedelta(minutes=5, seconds=30)
    reseal(Request.objects.all(), expires_at=at)
    desk.log_in("bea")
    desk.page.clock.install(time=timezone.now() - timedelta(days=2))
    desk.open("/inbox/")
    return desk.page


def test_deadlines_run_down_and_two_marks_are_said_once(bea: Page) -> None:
    due = bea.locator(".due")
    voice = bea.locator("p.vh[role=status]")
    expect(due).to_contain_text("in 5 min")
    bea.clock.run_for(60_000)
    expect(due).to_contain_text("in 4 min")
    expect(voice).to_have_text("Expires in 5 min: Set the privileges of newhire to 3")
    expect(bea.locator(".due time")).to_have_attribute("title", re.compile(" UTC$"))
    bea.clock.run_for(225_000)
    expect(due).to_have_attribute("data-left", "none")
    expect(voice).to_have_text("Expires in 1 min: Set the privileges of newhire to 3")


def test_moments_are_shown_in_the_zone_of_the_reader(
    desk: Desk, chromium: Browser, asked: str
) -> None:
    with window(chromium, desk.url, timezone_id="Asia/Tokyo") as tokyo:
        tokyo.log_in("bea")
        tokyo.open(asked)
        moment = tokyo.page.locator(".dl time").first
        expect(moment).to_contain_text("GMT+9")
        assert (moment.get_attribute("title") or "").endswith(" UTC")


def test_a_pressed_button_stays_disabled_and_its_decision_is_confirmed(bea: Page) -> None:
    bea.get_by_role("link", name="Set the privileges").click()
    bea.wait_for_url("**/a/**")
    approve = bea.get_by_role("button", name="Approve")
    bea.route("**/approve/", lambda route: route.fulfill(status=204))  # and stay here
    approve.click()
    bea.clock.run_for(10)
    expect(approve).to_be_disabled()
    bea.evaluate("dispatchEvent(new PageTransitionEvent('pageshow'))")
    expect(approve).to_be_enabled()
    bea.unroute("**/approve/")
    approve.dblclick()
    toast = bea.locator(".toast")
    expect(toast).to_have_text("Approved. A worker starts it next.")
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    bea.wait_for_load_state()  # the words are there before the script that takes them away
    bea.clock.run_for(9000)
    expect(toast).to_have_count(0)
