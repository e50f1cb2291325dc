"""Everything works without scripts: plain links, plain forms."""

from uuid import UUID

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import window
from tests.support.cast import PASSWORD
from tests.support.office import Office

pytestmark = pytest.mark.browser


def test_bea_logs_in_filters_and_decides(
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
        page.get_by_role("link", name="Decided today").click()
        expect(page.get_by_role("heading", name="Nothing was decided today")).to_be_visible()
        plain.open("/inbox/")
        page.get_by_label("Search").fill("another")
        page.get_by_role("button", name="Search").click()
        expect(page.locator(".row")).to_have_count(1)
        expect(page.get_by_label("Search")).to_have_value("another")
        page.get_by_role("link", name="Clear the filter").click()
        expect(page.locator(".row")).to_have_count(2)
        page.get_by_role("link", name="Set the privileges of newhire to 3").click()
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("heading", name="Approved by bea")).to_be_visible()
        plain.open("/inbox/")
        page.get_by_role("link", name="Set the privileges of another to 2").click()
        page.get_by_role("textbox", name="Reason").fill("Not before Monday.")
        page.get_by_role("button", name="Deny").click()
        expect(page.get_by_role("heading", name="Denied by bea")).to_be_visible()
