"""The main jobs on the whole application, decided in a real browser."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from tests.support.people import Office
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "seen in a browser") as stack:
        yield Office(stack)


@pytest.fixture
def bea(chromium: Browser, office: Office) -> Iterator[Page]:
    context = chromium.new_context(base_url=office.stack.url)
    yield _log_in(context, office, "bea")
    context.close()


@pytest.fixture
def ada(chromium: Browser, office: Office) -> Iterator[Page]:
    context = chromium.new_context(base_url=office.stack.url)
    yield _log_in(context, office, "ada")
    context.close()


def _log_in(context: BrowserContext, office: Office, name: str) -> Page:
    page = context.new_page()
    page.goto("/")
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(office.stack.credentials["users"][name]["password"])
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    return page


def test_bea_approves_a_nested_run_in_her_browser(bea: Page, office: Office) -> None:
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
    bea.get_by_role("link", name="See the run").click()
    expect(bea.get_by_text("The welcome mail went to seen@example.org").first).to_be_visible()


def test_bea_decides_two_calls_of_one_page_separately(bea: Page, office: Office) -> None:
    run = office.start("hr_access_bundle", "paired", level=2)
    office.wait(run, "suspended")
    bea.goto("/inbox/")
    bea.get_by_role("link", name="Give paired security level 2").click()
    expect(bea.get_by_role("heading", name="Requested together")).to_be_visible()
    bea.get_by_role("button", name="Approve").click()
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    bea.get_by_role("link", name="Give paired access to intranet").click()
    bea.get_by_role("textbox", name="Reason").fill("Not needed for this work.")
    bea.get_by_role("button", name="Deny").click()
    expect(bea.get_by_role("heading", name="Denied by bea")).to_be_visible()
    found = office.wait(run, "completed")
    assert office.roles("paired") == ["security-level-2"]
    assert "Not needed for this work." in found["output"]


@pytest.mark.parametrize("line", ["Live", "Reconnecting…"])
def test_beas_decision_appears_on_adas_page_without_reload(
    ada: Page, bea: Page, office: Office, line: str
) -> None:
    """With live updates, and without them."""
    if line == "Reconnecting…":
        ada.context.route("**/events/", lambda route: route.abort())
    name = "shared-live" if line == "Live" else "shared-polled"
    run = office.start("hr_onboarding_single", name, level=2)
    approval = office.wait(run, "suspended")["gates"][0]["approval"]
    ada.goto(f"/a/{approval}/")
    ada.evaluate("window.stayed = true")
    expect(ada.get_by_text(line, exact=True)).to_be_visible()
    bea.goto(f"/a/{approval}/")
    bea.get_by_role("button", name="Approve").click()
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    expect(ada.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert ada.evaluate("window.stayed") is True


def test_a_new_action_rings_at_an_open_inbox_and_moves_nothing(bea: Page, office: Office) -> None:
    office.wait(office.start("hr_onboarding_single", "early", level=2), "suspended")
    bea.goto("/inbox/")
    expect(bea.get_by_text("Live", exact=True)).to_be_visible()
    before = bea.locator("[data-live=inbox] .t").all_inner_texts()
    office.wait(office.start("hr_onboarding_single", "late", level=2), "suspended")
    more = bea.get_by_role("button", name="new, press . to show")
    expect(more).to_be_visible()
    assert bea.locator("[data-live=inbox] .t").all_inner_texts() == before
    bea.keyboard.press(".")
    expect(bea.get_by_role("link", name="Give late security level 2")).to_be_visible()


def test_open_tabs_do_not_keep_the_application_from_stopping(bea: Page, office: Office) -> None:
    """Last in this file, because it stops everything."""
    bea.goto("/inbox/")
    expect(bea.get_by_text("Live", exact=True)).to_be_visible()
    office.stack.stop()
    expect(bea.get_by_text("Offline", exact=True)).to_be_visible(timeout=90_000)
