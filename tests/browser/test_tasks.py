"""The tasks of people who never read a manual, with the clicks that each takes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, expect

from approvals.models import Approval
from tests.browser.conftest import Desk
from tests.support import seeds
from tests.support.office import Office
from tests.web.requests.test_edit_previews import perform, previewed

pytestmark = pytest.mark.browser

INPUT = {"type": "object", "properties": {"username": {"type": "string"}}, "required": ["username"]}


@dataclass(slots=True, kw_only=True)
class Hand:
    """What a person does on a page: the clicks are counted."""

    page: Page
    clicks: int = 0

    def click(self, target: Locator) -> None:
        target.click()
        self.clicks += 1

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name).first)


@pytest.fixture
def hand(desk: Desk) -> Iterator[Hand]:
    desk.look(1440, "light")
    yield Hand(page=desk.page)
    assert desk.complaints == []


def test_a_requester_starts_a_run_and_finds_what_became_of_it(
    desk: Desk, hand: Hand, office: Office, suspended: UUID
) -> None:
    seeds.published(input_schema=INPUT)
    office.deny(suspended, "Ask her lead first.")
    desk.log_in("ada")
    desk.open("/")
    hand.link("Agents")
    hand.link("HR onboarding")
    hand.link("Start a run")
    started = hand.clicks
    hand.page.get_by_label("username").fill("newhire")
    hand.button("Start the run")
    hand.page.wait_for_url("**/runs/*/")
    hand.link("My requests")
    expect(hand.page.locator("main")).to_contain_text("Ask her lead first.")
    assert (started, hand.clicks) == (3, 5)


def test_a_reviewer_changes_a_sum_on_one_page_with_one_decision(
    desk: Desk, hand: Hand, office: Office
) -> None:
    """The form, the new consequences and the approval are in the request."""
    tool = office.effects.tools["set_privileges"]
    office.effects.tools["set_privileges"] = replace(tool, preview=previewed)
    run = office.start()
    page = hand.page
    desk.log_in("bea")
    desk.open(f"/a/{office.request(run).id}/")
    page.evaluate("window.stayed = true")
    hand.link("Edit")
    page.get_by_label("security_level").fill("1")
    hand.button("Show the changes")
    expect(page.get_by_text("Working out what the changed call would do")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    perform(office)
    expect(page.get_by_text("from 0 to 1")).to_be_visible()
    assert page.evaluate("window.stayed") is True
    hand.button("Approve with 1 change")
    expect(page.get_by_role("heading", name="Approved with changes by bea")).to_be_visible()
    assert office.advance(run).status == "completed"
    assert (Approval.objects.get().status, hand.clicks) == ("approved", 3)
