"""How a request is read: the browser measures while the tab is in front, and the reader alone sees it."""

import pytest
from playwright.sync_api import Page, expect

from approvals.models import ReviewTime
from tests.browser.conftest import Desk
from tests.support.office import Office, reseal

pytestmark = pytest.mark.browser

LONG = {"username": "newhire", "security_level": 3, "note": "word " * 300}  # 45 s at 400 a minute


@pytest.fixture
def asked(office: Office) -> str:
    return f"/a/{office.request(office.start(args=LONG)).id}/"


def _hide(page: Page, hidden: bool) -> None:
    page.evaluate(
        """hidden => {
            Object.defineProperty(document, "hidden", { configurable: true, get: () => hidden });
            document.dispatchEvent(new Event("visibilitychange"));
        }""",
        hidden,
    )


def _approve(page: Page) -> None:
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_role("heading", name="Approved by bea")).to_be_visible()


@pytest.mark.parametrize(("seconds", "considered"), [(2, False), (60, True)])
def test_only_the_time_in_front_makes_a_decision_considered(
    desk: Desk, asked: str, seconds: int, considered: bool
) -> None:
    """Minutes behind another tab do not count."""
    desk.log_in("bea")
    desk.page.clock.install()
    desk.open("/inbox/")
    desk.page.clock.run_for(1000)
    desk.open(asked)
    desk.page.get_by_text("Nothing unusual").scroll_into_view_if_needed()
    desk.page.clock.run_for(seconds * 1000)
    _hide(desk.page, hidden=True)
    desk.page.clock.run_for(600_000)
    _hide(desk.page, hidden=False)
    _approve(desk.page)
    found = ReviewTime.objects.get()
    assert seconds * 1000 <= found.visible_ms < (seconds + 5) * 1000
    assert found.considered is considered
    assert found.first_seen_at is not None
    assert found.sections["what"] is True
    word = "Considered" if considered else "Not considered"
    desk.page.get_by_text("History").last.click()
    desk.page.get_by_text("How you read it").click()
    expect(desk.page.get_by_text(word)).to_be_visible()
    desk.log_in("ada")
    desk.open(asked)
    expect(desk.page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    expect(desk.page.get_by_text("How you read it")).to_have_count(0)


def test_at_high_risk_approve_waits_until_the_end_of_a_long_text_was_in_view(
    desk: Desk, office: Office
) -> None:
    note = "\n".join(f"line {number}" for number in range(60))
    approval = office.request(office.start(args={**LONG, "note": note}))
    reseal([approval], risk="high")
    desk.log_in("bea")
    desk.open(f"/a/{approval.id}/")
    approve = desk.page.get_by_role("button", name="Approve…")
    expect(approve).to_be_disabled()
    approve.dispatch_event("click")
    expect(desk.page.locator("#read-first")).to_be_visible()
    expect(approve).to_be_disabled()
    desk.page.locator(".folds").scroll_into_view_if_needed()
    approve.click()
    expect(desk.page.locator(".second")).to_be_visible()
