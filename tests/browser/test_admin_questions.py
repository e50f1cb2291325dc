"""The questions that admins ask most, each answered in at most three clicks from the first page."""

import threading
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import pytest
from django.utils import timezone
from playwright.sync_api import Locator, Page, expect

from approvals.models import Approval
from approvals.reads import pending_ages
from runtime.models import DailyUsage
from runtime.store import pool
from runtime.upkeep import rollups
from tests.browser.conftest import Desk
from tests.support.office import Office
from tests.web.requests.test_edit_previews import perform, previewed

pytestmark = pytest.mark.browser

MOST = 3


@pytest.fixture
def ask(desk: Desk, office: Office) -> Callable[..., Page]:
    """Begin at the first page of an admin, follow the links with these words or addresses, and return the page."""

    def ask(*places: str) -> Page:
        assert len(places) <= MOST
        desk.log_in("admin")
        desk.open("/")
        for place in places:
            _link(desk.page, place).click()
        return desk.page

    return ask


def _link(page: Page, place: str) -> Locator:
    if place.startswith(("/", "?")):
        return page.locator(f"a[href^='{place}']:visible").first
    return page.get_by_role("link", name=place).first


def test_which_agent_costs_most(ask: Callable[..., Page], office: Office) -> None:
    day = timezone.now().date()
    for agent, micros in (("cheap", 3), ("dear", 5_000_000)):
        DailyUsage.objects.create(
            day=day, agent=agent, model="m", requester="ada", replies=1, unpriced=0,
            input_tokens=1, output_tokens=1, micros=micros,
        )  # fmt: skip
    page = ask()
    costliest = page.locator("section[aria-labelledby=cost] .figures-table:visible tbody tr")
    expect(costliest.first).to_contain_text("Dear")
    page = ask("All costs")
    expect(page.locator("tbody tr").first).to_contain_text("Dear")
    expect(page.locator("tbody tr").first).to_contain_text("5.00")


def test_who_approved_what_today(ask: Callable[..., Page], office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    sentence = office.request(suspended).sentence
    page = ask("/inbox/", "/decisions/", "Today")
    row = page.locator(".row", has_text=sentence)
    expect(row).to_contain_text("bea")
    expect(row).to_contain_text("Approved")


def test_the_decisions_of_a_day_from_its_picture(
    ask: Callable[..., Page], office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    pending_ages.count()
    with pool.open_own() as connection:
        rollups.roll_up(connection, threading.Event())
    page = ask()
    page.locator(".chart a[href*='verdict=approved'] rect").click()
    expect(page.locator(".row", has_text=office.request(suspended).sentence)).to_be_visible()


def test_why_did_a_run_fail(ask: Callable[..., Page], office: Office) -> None:
    run = office.failed()
    page = ask("/runs/?status=failed", f"/runs/{run}/")
    expect(page.locator("main")).to_contain_text("Failed")


def test_why_does_a_run_wait(ask: Callable[..., Page], office: Office, suspended: UUID) -> None:
    page = ask("/runs/", f"/runs/{suspended}/")
    expect(page.locator("main")).to_contain_text(office.request(suspended).sentence)


def test_stop_everything(ask: Callable[..., Page], office: Office) -> None:
    page = ask("Emergency stop")
    page.get_by_label("Which agent").select_option("*")
    page.get_by_label("type “every agent”").fill("every agent")
    page.get_by_label("Reason").fill("The model is compromised.")
    page.get_by_role("button", name="Stop").click()
    expect(page.get_by_role("heading", name="Every agent is stopped")).to_be_visible()


def test_change_a_sum_on_one_page_with_one_decision(desk: Desk, office: Office) -> None:
    """A reviewer's: the form, the new consequences and the approval are in the request."""
    tool = office.effects.tools["set_privileges"]
    office.effects.tools["set_privileges"] = replace(tool, preview=previewed)
    run = office.start()
    page = desk.page
    desk.log_in("bea")
    desk.open(f"/a/{office.request(run).id}/")
    page.evaluate("window.stayed = true")
    page.get_by_role("link", name="Edit").click()
    page.get_by_label("security_level").fill("1")
    page.get_by_role("button", name="Show the changes").click()
    expect(page.get_by_text("Working out what the changed call would do")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    perform(office)
    expect(page.get_by_text("from 0 to 1")).to_be_visible()
    assert page.evaluate("window.stayed") is True
    page.get_by_role("button", name="Approve with 1 change").click()  # the third click
    expect(page.get_by_role("heading", name="Approved with changes by bea")).to_be_visible()
    assert office.advance(run).status == "completed"
    assert Approval.objects.get().status == "approved"


def test_a_person_left(ask: Callable[..., Page], office: Office) -> None:
    page = ask("People")
    expect(page.locator("main")).to_contain_text("cyril")
