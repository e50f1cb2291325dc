"""Edit and approve in a browser: by keyboard and mouse, and without JavaScript."""

import pytest
from playwright.sync_api import Browser, Page, expect
from pytest_django.live_server_helper import LiveServer

from approvals.models import Request
from tests.browser.conftest import window
from tests.support.office import Office

pytestmark = pytest.mark.browser


def _approve_with_changes(page: Page) -> None:
    page.get_by_label("security_level").fill("1")
    page.get_by_role("button", name="Show the changes").click()
    expect(page.get_by_text("with 1 changed argument")).to_be_visible()
    page.get_by_role("button", name="Approve with 1 change").click()


@pytest.mark.parametrize("script", [True, False])
def test_a_reviewer_edits_and_approves(
    chromium: Browser, live_server: LiveServer, office: Office, asked: str, script: bool
) -> None:
    with window(chromium, live_server.url, java_script_enabled=script) as desk:
        desk.log_in("bea")
        desk.open(asked)
        if script:
            desk.page.keyboard.press("e")
        else:
            desk.page.get_by_role("link", name="Edit").click()
        _approve_with_changes(desk.page)
        expect(
            desk.page.get_by_role("heading", name="Approved with changes by bea")
        ).to_be_visible()
    assert Request.objects.get().status == "approved"
