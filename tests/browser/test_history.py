"""The history of decisions in a browser: its days are those of the reader."""

from datetime import timedelta

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from approvals.models import Approval
from tests.browser.conftest import window
from tests.support.office import Office
from tests.support.seeds import PASSWORD

pytestmark = pytest.mark.browser


def test_yesterday_in_the_readers_zone_is_two_clicks_away(
    chromium: Browser, live_server: LiveServer, office: Office
) -> None:
    run = office.start()
    office.deny(run, "Not now.")
    with timezone.override("Pacific/Kiritimati"):
        today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    at = today - timedelta(seconds=1)
    Approval.objects.filter(run=run).update(decided_at=at)
    with window(chromium, live_server.url, timezone_id="Pacific/Kiritimati") as desk:
        page = desk.page
        desk.open("/login/")
        page.get_by_label("Username").fill("bea")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="History").click()
        page.get_by_role("link", name="Yesterday").click()
        expect(page.get_by_role("heading", name=f"{at:%A}, {at.day} {at:%B %Y}")).to_be_visible()
        expect(page.locator(".row")).to_have_count(1)
        expect(page.locator(".row")).to_contain_text("23:59:59")
