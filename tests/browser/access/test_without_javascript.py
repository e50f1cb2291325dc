"""Everything works without scripts: plain links, plain forms."""

from collections.abc import Iterator
from uuid import UUID

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.conftest import Desk, window
from tests.support.office import Office

pytestmark = pytest.mark.browser


@pytest.fixture
def plain(chromium: Browser, live_server: LiveServer, office: Office) -> Iterator[Desk]:
    with window(chromium, live_server.url, java_script_enabled=False) as desk:
        yield desk


def test_bea_logs_in_and_approves(plain: Desk, suspended: UUID) -> None:
    plain.log_in_by_form("bea")
    plain.page.get_by_role("link", name="Set the privileges of newhire to 3").click()
    plain.page.get_by_role("button", name="Approve").click()
    expect(plain.page.get_by_role("heading", name="Approved by bea")).to_be_visible()


def test_bea_denies_with_a_reason(plain: Desk, asked: str) -> None:
    plain.log_in("bea")
    plain.open(asked)
    plain.page.get_by_role("textbox", name="Reason").fill("Not before Monday.")
    plain.page.get_by_role("button", name="Deny").click()
    expect(plain.page.get_by_role("heading", name="Denied by bea")).to_be_visible()
    expect(plain.page.get_by_text("Not before Monday.").first).to_be_visible()


def test_the_inbox_filters_and_offers_nothing_that_needs_scripts(
    plain: Desk, office: Office
) -> None:
    office.start()
    office.start(args={"username": "another", "security_level": 2})
    plain.log_in("bea")
    plain.open("/inbox/")
    field = plain.page.get_by_label("Search")
    field.fill("another")
    plain.page.get_by_role("button", name="Search").click()
    expect(plain.page.locator(".row")).to_have_count(1)
    expect(field).to_have_value("another")
    plain.page.get_by_role("link", name="Clear the filter").click()
    expect(plain.page.locator(".row")).to_have_count(2)
    plain.page.get_by_role("link", name="Decided today").click()
    expect(plain.page.get_by_role("heading", name="Nothing was decided today")).to_be_visible()
    expect(plain.page.get_by_role("button", name="Shortcuts")).to_have_count(0)
