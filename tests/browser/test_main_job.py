"""The nested main job on the whole application, decided in a real browser."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.office import Office
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]


def test_bea_approves_a_nested_run_in_her_browser_and_it_finishes(
    chromium: Browser, sandbox: Path
) -> None:
    with Stack(sandbox / "seen in a browser") as stack:
        office = Office(stack)
        run = office.start("hr_onboarding", "seen", level=2)
        office.wait(run, "suspended")
        page = chromium.new_page(base_url=stack.url)
        page.goto("/")
        page.get_by_label("Username").fill("bea")
        page.get_by_label("Password").fill(stack.credentials["users"]["bea"]["password"])
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
        page.get_by_role("link", name="Give seen security level 2").click()
        for text in ("hr_onboarding", "account_agent", "Send the welcome mail"):
            expect(page.get_by_text(text).first).to_be_visible()
        assert (office.roles("seen"), office.mails("seen")) == ([], 0)
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_role("heading", name="Approved by bea")).to_be_visible()
        office.wait(run, "completed")
        assert (office.roles("seen"), office.mails("seen")) == (["security-level-2"], 1)
        page.get_by_role("link", name="See how the run goes on").click()
        expect(page.get_by_text("The welcome mail went to seen@example.org").first).to_be_visible()
        page.close()
