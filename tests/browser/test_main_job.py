"""The main jobs on the whole application, decided in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.office import Office
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "seen in a browser") as stack:
        yield Office(stack)


@pytest.fixture
def bea(chromium: Browser, office: Office) -> Iterator[Page]:
    page = chromium.new_page(base_url=office.stack.url)
    page.goto("/")
    page.get_by_label("Username").fill("bea")
    page.get_by_label("Password").fill(office.stack.credentials["users"]["bea"]["password"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    yield page
    page.close()


def test_bea_approves_a_nested_run_in_her_browser_and_it_finishes(
    bea: Page, office: Office
) -> None:
    run = office.start("hr_onboarding", "seen", level=2)
    office.wait(run, "suspended")
    bea.goto("/inbox/")
    bea.get_by_role("link", name="Give seen security level 2").click()
    for text in ("hr_onboarding", "account_agent", "Send the welcome mail"):
        expect(bea.get_by_text(text).first).to_be_visible()
    assert (office.roles("seen"), office.mails("seen")) == ([], 0)
    bea.get_by_role("button", name="Approve").click()
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    office.wait(run, "completed")
    assert (office.roles("seen"), office.mails("seen")) == (["security-level-2"], 1)
    bea.get_by_role("link", name="See how the run goes on").click()
    expect(bea.get_by_text("The welcome mail went to seen@example.org").first).to_be_visible()


def test_bea_sees_a_bundle_together_and_decides_its_two_parts_on_their_own(
    bea: Page, office: Office
) -> None:
    run = office.start("hr_access_bundle", "paired", level=2)
    office.wait(run, "suspended")
    bea.goto("/inbox/")
    bea.get_by_role("link", name="Give paired security level 2").click()
    expect(bea.get_by_role("heading", name="Asked for in the same turn")).to_be_visible()
    bea.get_by_role("button", name="Approve").click()
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    bea.get_by_role("link", name="Give paired access to intranet").click()
    bea.get_by_label("Reason").fill("Not needed for this work.")
    bea.get_by_role("button", name="Deny").click()
    expect(bea.get_by_role("heading", name="Denied by bea")).to_be_visible()
    found = office.wait(run, "completed")
    assert office.roles("paired") == ["security-level-2"]
    assert "Not needed for this work." in found["output"]
