"""The tasks of people who never read a manual, with the clicks and keys that each takes."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import pytest
from playwright.sync_api import Locator, Page, expect

from approvals.models import Approval
from tests.approvals.policies.office import put_in_force
from tests.browser.conftest import Desk
from tests.support import seeds
from tests.support.office import Office
from tests.support.seeds import PASSWORD

pytestmark = pytest.mark.browser

RULE = "rules: [{name: Privileges, people: [bea]}]"
INPUT = {"type": "object", "properties": {"username": {"type": "string"}}, "required": ["username"]}
SENTENCE = "Set the privileges of newhire to 3"


@dataclass(slots=True, kw_only=True)
class Hand:
    """What a person does on a page: its clicks and its keys are counted, letters of texts are not."""

    page: Page
    clicks: int = 0
    keys: int = 0

    def click(self, target: Locator) -> None:
        target.click()
        self.clicks += 1

    def press(self, key: str) -> None:
        self.page.keyboard.press(key)
        self.keys += 1

    def button(self, name: str) -> None:
        self.click(self.page.get_by_role("button", name=name, exact=True))

    def link(self, name: str) -> None:
        self.click(self.page.get_by_role("link", name=name).first)


@pytest.fixture
def hand(desk: Desk) -> Iterator[Hand]:
    desk.look(1440, "light")
    yield Hand(page=desk.page)
    assert desk.complaints == []


def _log_in(desk: Desk, hand: Hand, name: str) -> None:
    """Log in as a newcomer does."""
    desk.open("/")
    hand.page.get_by_label("Username").fill(name)
    hand.page.get_by_label("Password").fill(PASSWORD)
    hand.page.keyboard.press("Enter")
    expect(hand.page.get_by_role("button", name="Log out")).to_be_visible()


def test_a_newcomer_approves_the_first_request_with_one_click(
    desk: Desk, hand: Hand, office: Office, suspended: UUID
) -> None:
    _log_in(desk, hand, "bea")
    expect(hand.page.locator("#panel h1")).to_have_text(SENTENCE)
    hand.button("Approve")
    expect(hand.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert hand.clicks == 1


def test_a_newcomer_without_a_right_reads_who_can_give_one(
    desk: Desk, hand: Hand, office: Office
) -> None:
    _log_in(desk, hand, "cyril")
    expect(hand.page.get_by_role("heading", name="You have no rights yet")).to_be_visible()
    expect(hand.page.locator("main")).to_contain_text("admin")


def test_a_requester_starts_a_run_and_finds_what_became_of_it(
    desk: Desk, hand: Hand, office: Office, suspended: UUID
) -> None:
    seeds.published(input_schema=INPUT)
    office.deny(suspended, "Ask her lead first.")
    _log_in(desk, hand, "ada")
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


def test_a_reviewer_clears_the_inbox_by_one_key_each(
    desk: Desk, hand: Hand, office: Office
) -> None:
    for number in range(5):
        office.start(args={"username": f"person{number}", "security_level": 1})
    _log_in(desk, hand, "bea")
    for number in range(5):
        expect(hand.page.locator("#panel h1")).to_have_text(
            f"Set the privileges of person{number} to 1"
        )
        while not hand.page.evaluate("!panel.inert && performance.now() > filledAt + 1000"):
            pass  # a key decides nothing before; Playwright's own waiting needs eval, which pages forbid
        hand.press("a")
    expect(hand.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert (hand.clicks, hand.keys) == (0, 5)
    assert Approval.objects.filter(status="approved").count() == 5


def test_an_approval_with_a_remark_takes_one_click(
    desk: Desk, hand: Hand, office: Office, suspended: UUID
) -> None:
    _log_in(desk, hand, "bea")
    hand.page.get_by_role("textbox", name="Remark").fill("As agreed.")
    hand.button("Approve")
    expect(hand.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert hand.clicks == 1
    assert Approval.objects.get().reason == "As agreed."


def test_the_evidence_of_a_decision_for_an_auditor(
    desk: Desk, hand: Hand, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    _log_in(desk, hand, "admin")
    hand.link("Inbox")
    hand.click(hand.page.locator(".tabs").get_by_role("link", name="History"))
    hand.link(SENTENCE)
    hand.click(hand.page.locator("#history > summary"))
    with hand.page.expect_download() as download:
        hand.link("Download the signed decision")
    assert '"signature"' in Path(download.value.path()).read_text()
    assert hand.clicks == 5


def test_a_person_who_left_is_disabled_and_their_rules_are_named(
    desk: Desk, hand: Hand, office: Office
) -> None:
    put_in_force(RULE)
    _log_in(desk, hand, "admin")
    hand.link("People")
    card = hand.page.locator("#bea")
    hand.click(card.locator("summary").first)
    expect(card).to_contain_text("Without bea too few people can meet the rule of the policy")
    hand.click(card.get_by_role("button", name="Disable"))
    expect(hand.page.locator("main .note.danger")).to_contain_text("cannot be met")
    assert hand.clicks == 3
