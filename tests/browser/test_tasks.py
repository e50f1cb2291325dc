"""Tasks of people in a browser: to start, to decide, to read and to find again."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from uuid import UUID

import pytest
from django.utils import timezone
from playwright.sync_api import Browser, Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from approvals.models import Approval, ReviewTime
from tests.browser.access.test_axe import replayed
from tests.browser.conftest import Desk, window
from tests.support import seeds
from tests.support.office import Office, reseal
from tests.support.seeds import PASSWORD
from tests.web.requests.test_edit import perform, previewed

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


# Reading


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


# History


def test_yesterday_in_the_readers_zone_is_two_clicks_away(
    chromium: Browser, live_server: LiveServer, office: Office
) -> None:
    run = office.start()
    office.deny(run, "Not now.")
    with timezone.override("Pacific/Kiritimati"):
        today = timezone.localtime().replace(hour=0, minute=0, second=0, microsecond=0)
    at = today - timedelta(seconds=1)
    Approval.objects.filter(run=run).update(decided_at=at)
    with window(chromium, live_server.url, timezone_id="Pacific/Kiritimati") as desk:
        page = desk.page
        desk.open("/login/")
        page.get_by_label("Username").fill("bea")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.get_by_role("link", name="History").click()
        page.get_by_role("link", name="Yesterday").click()
        expect(page.get_by_role("heading", name=f"{at:%A}, {at.day} {at:%B %Y}")).to_be_visible()
        expect(page.locator(".row")).to_have_count(1)
        expect(page.locator(".row")).to_contain_text("23:59:59")


# Pages of runs


NARROWEST = 200
TEXTS = ".trio .box, .trio p, .row .t, .row .wait, .args dd"
WIDTHS = f"found => found.filter(it => it.clientWidth < {NARROWEST}).map(it => it.outerHTML)"


@pytest.mark.parametrize("width", [390, 1440, 1920])
def test_texts_of_runs_are_not_squeezed_into_columns(
    desk: Desk, office: Office, suspended: UUID, width: int
) -> None:
    desk.look(width, "light")
    desk.log_in("admin")
    denied = office.start(args={"username": "another", "security_level": 1})
    office.deny(denied, "Not now.")
    paths = (f"/runs/{suspended}/compare/{denied}/", f"/runs/{suspended}/at/3/", "/runs/")
    for path in (*paths, "/overview/", "/stops/", "/account/"):
        desk.open(path)
        narrow = desk.page.locator(TEXTS).evaluate_all(WIDTHS)
        assert narrow == [], path
        assert desk.page.evaluate("document.documentElement.scrollWidth") <= width, path
    desk.open(f"/runs/{replayed(office)}/replay/")
    facts = desk.page.locator(".dl dd")
    expect(facts).to_have_count(4)
    assert facts.evaluate_all(WIDTHS) == []


def test_a_tick_stays_when_the_list_of_runs_changes(desk: Desk, office: Office) -> None:
    first, second = office.start(), office.start(advanced=False)
    desk.log_in("admin")
    desk.page.clock.install()
    desk.open("/runs/")
    for run in (first, second):
        desk.page.locator(f"input[value='{run}']").check()
    desk.page.evaluate("document.activeElement.blur()")
    office.start()
    desk.page.clock.run_for(11_000)
    expect(desk.page.get_by_role("button", name="This page has changed")).to_be_visible()
    desk.page.get_by_role("button", name="Compare two selected runs").click()
    desk.page.wait_for_url(
        re.compile(f"/runs/({first}/compare/{second}|{second}/compare/{first})/")
    )


@pytest.mark.parametrize("width", [390, 1440])
def test_a_step_opens_beside_the_map_without_a_reload(
    desk: Desk, suspended: UUID, width: int
) -> None:
    desk.look(width, "light")
    desk.log_in("ada")
    desk.open(f"/runs/{suspended}/")
    page = desk.page
    page.evaluate("window.untouched = true")
    page.locator("details.twig summary").last.click()
    expect(page.locator(".wf").get_by_role("link", name="Create account")).to_be_hidden()
    page.locator(".wf").get_by_role("link", name="Account agent").first.click()
    expect(page.locator("#step")).to_be_focused()
    expect(page.locator(".wf [aria-current]")).to_have_text("Account agent")
    assert "step=0.c1.0" in page.url
    page.get_by_role("link", name="Close").click()
    expect(page.locator("#step")).to_be_hidden()
    expect(page.locator(".wf a:focus")).to_have_text("Account agent")
    expect(page.locator(".wf").get_by_role("link", name="Create account")).to_be_hidden()
    page.get_by_placeholder("Search the steps").fill("privileges")
    expect(page.locator(".wf li")).to_have_count(4)
    assert "q=privileges" in page.url
    assert page.evaluate("window.untouched && document.documentElement.scrollWidth") <= width
