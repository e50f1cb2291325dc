"""Open pages without live updates: they poll, count down, and lose neither text nor place."""

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.test import override_settings
from django.utils import timezone
from playwright.sync_api import Browser, Page, expect

from approvals.decisions import teamwork
from approvals.decisions.decide import undo
from approvals.governance import prompt_list
from approvals.models import Approval
from approvals.rules.policy import Group
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.enums import Verdict
from runtime.models import PromptTrial
from runtime.ports.access import Actor
from tests.approvals.test_prompts import NAME as PROMPT
from tests.approvals.test_prompts import desk as shop_desk
from tests.browser.conftest import Desk, window
from tests.support import seeds
from tests.support.office import BEA, Office, reseal
from tests.support.released import released
from tests.support.seeds import PASSWORD, decide

pytestmark = pytest.mark.browser

DOWN = "The server cannot be reached. Decisions are not sent, and this page may be out of date."
PRIVILEGES = "Set the privileges of newhire to 3"
REASON = "Ask her lead first.\nThen again."


@pytest.fixture
def bea(desk: Desk, office: Office) -> Page:
    """Her page, whose time a test can make pass, on a machine whose clock is wrong."""
    desk.log_in("bea")
    desk.page.clock.install(time=timezone.now() - timedelta(days=2))
    return desk.page


def test_decisions_appear_unasked(desk: Desk, bea: Page, office: Office, suspended: UUID) -> None:
    desk.open("/inbox/")
    bea.evaluate("window.stays = true")
    expect(bea.locator(".live")).to_have_text("Reconnecting…")
    row = bea.locator(".row", has_text=PRIVILEGES)
    place = row.bounding_box()
    with override_settings(SIGNOFF_UNDO_SECONDS=60):
        decide(office.request(suspended), BEA, Verdict.DENY, "Not today.")
    bea.clock.run_for(4000)
    expect(row).to_have_class(re.compile("gone"))
    expect(row).to_contain_text("by bea")
    assert bea.evaluate("window.stays")
    assert row.bounding_box() == place
    expect(bea.locator("[data-count=mine]")).to_have_text(["0", "0"])
    expect(bea).to_have_title("Inbox · Signoff")
    undo(approval_id=office.request(suspended).id, actor=BEA)
    bea.clock.run_for(4000)
    expect(row).not_to_have_class(re.compile("gone"))
    expect(row).not_to_contain_text("by bea")
    expect(bea.locator("[data-count=mine]")).to_have_text(["1", "1"])
    expect(bea.get_by_role("button", name="new")).to_have_count(0)


def test_new_rows_wait_until_they_are_asked_for(desk: Desk, bea: Page, office: Office) -> None:
    desk.open("/inbox/")
    expect(bea.get_by_role("heading", name="You're all caught up")).to_be_visible()
    office.start()
    bea.clock.run_for(4000)
    expect(bea.locator(".row")).to_have_count(1)  # an empty inbox fills by itself
    expect(bea).to_have_title("Inbox (1) · Signoff")
    bea.keyboard.press("j")
    expect(bea.locator("#panel h1")).to_be_visible()
    first = bea.locator(".row").first
    place = first.bounding_box()
    office.start(args={"username": "another", "security_level": 2})
    office.start(args={"username": "third", "security_level": 1})
    bea.clock.run_for(4000)
    expect(bea.get_by_role("button", name="2 new, press . to show")).to_be_visible()
    expect(bea.locator(".row")).to_have_count(1)
    assert first.bounding_box() == place
    bea.keyboard.press(".")
    expect(bea.locator(".row")).to_have_count(3)
    expect(bea.get_by_role("link", name=PRIVILEGES)).to_be_focused()
    expect(bea.get_by_role("button", name="new")).to_have_count(0)


def test_an_untouched_page_asks_once_a_minute_until_its_session_ends(desk: Desk, bea: Page) -> None:
    desk.open("/inbox/")
    for _ in range(3):
        with bea.expect_response(re.compile("known=")):
            bea.clock.run_for(4000)
    with bea.expect_response(re.compile("known=")):
        bea.clock.fast_forward(70_000)
    while bea.evaluate("regions[0].busy"):  # the answer is here; it is being taken in
        bea.clock.run_for(100)
    asked = bea.evaluate("regions[0].asked")
    bea.clock.fast_forward(30_000)
    assert bea.evaluate("regions[0].asked") == asked
    bea.context.clear_cookies()
    with bea.expect_response(re.compile("known=")):
        bea.clock.fast_forward(40_000)
    expect(bea.get_by_role("heading", name="Log in")).to_be_visible()


@pytest.mark.usefixtures("office")
def test_a_trial_of_a_prompt_is_followed_until_it_has_ended(desk: Desk) -> None:
    spec = shop_desk()
    released(spec.subagents[0])
    released(spec)
    prompt_list.ask(PROMPT, 0, 1, actor=Actor(person="admin"))
    desk.log_in("admin")
    page = desk.page
    desk.open("/prompts/")
    page.locator(".row .sub a").first.click()  # beside the link that covers the row
    page.wait_for_url("**/agents/*/")
    page.clock.install(time=timezone.now())
    desk.open(f"/prompts/{PROMPT}/0/try/")
    expect(page.get_by_text("waits for a worker")).to_be_visible()
    with page.expect_response(re.compile("/try/")):
        page.clock.fast_forward(70_000)  # from now on other untouched pages ask once a minute
    while page.evaluate("regions[0].busy"):
        page.clock.run_for(100)
    asked = page.evaluate("regions[0].asked")
    PromptTrial.objects.update(state="done", ended_at=timezone.now())
    page.clock.run_for(4000)
    assert page.evaluate("asked => regions[0]?.asked !== asked", asked)
    expect(page.get_by_role("button", name="Try on recorded runs")).to_be_visible()


def test_offline_decisions_are_not_sent_and_it_says_so(desk: Desk, bea: Page, asked: str) -> None:
    desk.open(asked)
    approve = bea.get_by_role("button", name="Approve")
    bea.context.set_offline(True)
    expect(bea.get_by_text(DOWN)).to_be_visible()
    expect(bea.locator(".live")).to_have_text("Offline")
    expect(approve).to_be_disabled()
    expect(approve).to_have_accessible_description(DOWN)
    with bea.expect_event("requestfailed", lambda sent: "/healthz" in sent.url):
        bea.get_by_role("link", name="Runs", exact=True).click()
    assert bea.url.endswith(asked)  # not the browser's own page
    bea.context.set_offline(False)
    expect(approve).to_be_enabled()
    expect(bea.get_by_text(DOWN)).to_have_count(0)
    # A local server is in reach without a network.
    bea.add_init_script(
        "Object.defineProperty(Navigator.prototype, 'onLine', { get: () => false })"
    )
    bea.reload()
    bea.evaluate("dispatchEvent(new Event('offline'))")
    expect(bea.locator(".live")).to_have_text("Reconnecting…")
    expect(approve).to_be_enabled()


def test_a_decision_elsewhere_keeps_a_typed_reason(
    desk: Desk, bea: Page, office: Office, suspended: UUID
) -> None:
    approval = office.request(suspended)
    desk.open(f"/a/{approval.id}/")
    bea.keyboard.press("d")
    reason = bea.get_by_role("textbox", name="Remark")
    reason.fill("I would rather wait for Monday.")
    bea.clock.run_for(4000)
    expect(bea.get_by_role("button", name="This page has changed")).to_have_count(0)
    decide(approval, BEA, Verdict.DENY, "Not today.")  # in another of her windows
    bea.clock.run_for(4000)
    told = bea.locator(".note.warn").filter(has_text="This request was closed elsewhere.")
    expect(told).to_be_in_viewport()
    expect(bea.get_by_role("heading", name="Denied by bea")).to_be_in_viewport()
    expect(reason).to_have_value("I would rather wait for Monday.")
    expect(reason).to_be_focused()
    expect(bea.get_by_role("button", name="Approve")).to_be_disabled()
    bea.get_by_role("button", name="Show the request as it is now").click()
    expect(bea.get_by_role("button", name="Approve")).to_have_count(0)
    expect(bea.get_by_text("Your text was not sent:")).to_be_visible()
    expect(bea.get_by_text("I would rather wait for Monday.")).to_be_visible()


def test_closing_elsewhere_leaves_a_refused_grant(desk: Desk, bea: Page, office: Office) -> None:
    approval = office.short(BudgetLimits(turns=1))
    desk.open(f"/a/{approval.id}/")
    bea.get_by_label("More turns").fill("abc")
    bea.get_by_role("button", name="Allow").click()
    expect(bea.get_by_text("Not decided: more turns must be a number")).to_be_visible()
    office.cancel(approval.run_id, "Not needed.")
    bea.clock.run_for(8000)
    expect(bea.get_by_role("heading", name="Cancelled by ada")).to_be_visible()
    expect(bea.get_by_text("Not decided: more turns must be a number")).to_be_visible()
    expect(bea.get_by_label("More turns")).to_have_value("abc")


def test_an_ended_run_removes_the_message_form_unless_used(desk: Desk, office: Office) -> None:
    """The form is outside the refreshed part. The refresh of an ended run has no `data-live`."""
    desk.log_in("ada")
    desk.open(f"/runs/{office.start()}/")
    form = desk.page.get_by_role("region", name="Write to the agent")
    expect(form).to_be_visible()
    desk.page.evaluate("document.getElementById('live').removeAttribute('data-live')")
    expect(form).to_be_hidden()
    form.locator("textarea").evaluate("field => { field.value = 'Wait.' }")
    expect(form).to_be_visible()


def test_typing_filters_the_inbox_and_keeps_it_live(desk: Desk, bea: Page, office: Office) -> None:
    shown = office.start(args={"username": "shown", "security_level": 3})
    office.start(args={"username": "hidden", "security_level": 3})
    desk.open("/inbox/")
    bea.evaluate("window.stayed = true")
    bea.keyboard.press("/")
    field = bea.get_by_label("Search")
    expect(field).to_be_focused()
    bea.keyboard.type("risk:none")
    bea.clock.run_for(400)
    expect(bea.get_by_role("alert")).to_contain_text("must name one of the risks")
    field.fill("shown")
    bea.clock.run_for(400)
    expect(bea.get_by_role("link", name="privileges of hidden")).to_have_count(0)
    expect(bea.get_by_role("link", name="privileges of shown")).to_be_visible()
    expect(bea.get_by_text("Filtered: 1")).to_be_visible()
    assert bea.url.endswith("?q=shown")
    office.start(args={"username": "hidden", "security_level": 1})
    office.approve(shown)
    bea.clock.run_for(4000)
    expect(bea.locator(".gone")).to_have_count(1)
    expect(bea.get_by_role("button", name="new")).to_have_count(0)
    assert bea.evaluate("window.stayed") is True
    bea.reload()
    expect(bea.get_by_role("heading", name="No match")).to_be_visible()
    assert [text for text in desk.complaints if "422" not in text] == []


def test_comments_of_others_are_told_and_own_ones_are_not(
    desk: Desk, bea: Page, office: Office, suspended: UUID
) -> None:
    eva = seeds.person("eva", Group.REVIEWERS)
    approval = office.request(suspended)
    desk.open(f"/a/{approval.id}/")
    bea.locator("summary", has_text="People and policy").click()
    bea.locator("#comment").fill("I ask her lead.")
    bea.get_by_role("button", name="Add comment").click()
    expect(bea.locator("#comment")).to_have_value("")
    bea.get_by_role("link", name="Open the run").focus()
    bea.clock.run_for(4000)
    expect(bea.get_by_text("I ask her lead.")).to_be_visible()
    bea.get_by_role("link", name="Open the run").focus()
    teamwork.add_comment(approval_id=approval.id, text="He agrees.", actor=eva)
    bea.clock.run_for(4000)
    bea.get_by_role("button", name="New here: 1 comment. Show").click()
    expect(bea.get_by_text("He agrees.")).to_be_visible()


# Deadlines and moments


def test_deadlines_run_down_and_two_marks_are_said_once(desk: Desk, bea: Page, asked: str) -> None:
    at = timezone.now() + timedelta(minutes=5, seconds=30)
    reseal(Approval.objects.all(), expires_at=at)
    desk.open("/inbox/")
    due, voice = bea.locator(".due"), bea.locator("p.vh[role=status]")
    expect(due).to_contain_text("in 5 min")
    bea.clock.run_for(60_000)
    expect(due).to_contain_text("in 4 min")
    expect(voice).to_have_text("Expires in 5 min: Set the privileges of newhire to 3")
    expect(bea.locator(".due time")).to_have_attribute("title", re.compile(" UTC$"))
    bea.clock.run_for(225_000)
    expect(due).to_have_attribute("data-left", "none")
    expect(voice).to_have_text("Expires in 1 min: Set the privileges of newhire to 3")


def test_moments_are_shown_in_the_readers_zone(desk: Desk, chromium: Browser, asked: str) -> None:
    with window(chromium, desk.url, timezone_id="Asia/Tokyo") as tokyo:
        tokyo.log_in("bea")
        tokyo.open(asked)
        moment = tokyo.page.locator(".dl time").first
        expect(moment).to_contain_text("GMT+9")
        assert (moment.get_attribute("title") or "").endswith(" UTC")


def test_the_second_click_of_a_double_click_decides_nothing_on_the_next_page(
    desk: Desk, bea: Page, office: Office, asked: str
) -> None:
    office.start(args={"username": "another", "security_level": 1})
    desk.open(asked)
    bea.clock.pause_at(
        timezone.now() - timedelta(days=1)
    )  # or a slow machine makes the second click a late one
    approve = bea.get_by_role("button", name="Approve")
    for decided, waits in ((1, 0), (1, 0), (2, 1000)):
        bea.clock.run_for(waits)
        approve.click()
        bea.wait_for_load_state()
        expect(bea.get_by_role("heading", name="privileges of another")).to_be_visible()
        assert Approval.objects.filter(status="approved").count() == decided
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()


def test_a_pressed_button_is_disabled_and_confirmed(desk: Desk, bea: Page, asked: str) -> None:
    desk.open(asked)
    approve = bea.get_by_role("button", name="Approve")
    bea.route("**/approve/", lambda route: route.fulfill(status=204))  # and stay here
    approve.click()
    bea.clock.run_for(10)
    expect(approve).to_be_disabled()
    bea.evaluate("dispatchEvent(new PageTransitionEvent('pageshow'))")
    expect(approve).to_be_enabled()
    bea.unroute("**/approve/")
    approve.dblclick()
    toast = bea.locator(".toast")
    expect(toast).to_have_text("Approved. A worker starts it next.")
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    bea.wait_for_load_state()  # the words are there before the script that takes them away
    bea.clock.run_for(9000)
    expect(toast).to_have_count(0)


# The session ends while a reviewer decides


def _end_session(page: Page) -> None:
    page.context.clear_cookies(name=re.compile("signoff_session"))


def _log_in_again(page: Page, name: str = "bea") -> None:
    page.get_by_label("Username").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()


def test_without_a_session_nothing_is_decided_and_a_draft_waits_for_its_author(
    desk: Desk, bea: Page, office: Office
) -> None:
    path = f"/a/{office.request(office.start(requester='admin')).id}/"
    desk.open(path)
    bea.keyboard.press("d")
    reason = bea.get_by_role("textbox", name="Remark")
    reason.fill(REASON)
    _end_session(bea)
    bea.get_by_role("button", name="Approve").click()
    expect(bea.get_by_text("Nothing was decided or changed")).to_be_visible()
    _log_in_again(bea)
    expect(bea).to_have_url(desk.url + path)
    expect(bea.get_by_text("Nothing was decided or changed")).to_be_visible()
    expect(reason).to_have_value(REASON)
    assert Approval.objects.get().status == "pending"
    _end_session(bea)
    bea.clock.run_for(4000)  # while she types
    _log_in_again(bea)
    expect(reason).to_have_value(REASON)
    _end_session(bea)
    bea.get_by_role("button", name="Deny").click()
    _log_in_again(bea, "ada")
    expect(bea.locator("#reason")).to_have_value("")


def test_a_reason_is_still_there_on_going_back(desk: Desk, bea: Page, asked: str) -> None:
    desk.open(asked)
    bea.get_by_role("button", name="Deny").click()
    bea.get_by_role("textbox", name="Remark").fill(REASON)
    # Over https a browser puts nothing back into a page that may not be stored. This is plain http.
    bea.evaluate("for (const form of document.forms) form.autocomplete = 'off'")
    bea.get_by_role("link", name="Runs").click()
    expect(bea.get_by_role("heading", name="Runs")).to_be_visible()
    bea.go_back()
    expect(bea.get_by_role("textbox", name="Remark")).to_have_value(REASON)
    bea.get_by_role("button", name="Log out").click()
    expect(bea.get_by_label("Username")).to_be_visible()
    assert REASON[:9] not in bea.evaluate("JSON.stringify(sessionStorage)")


def test_a_typed_password_can_be_shown_and_is_hidden_before_it_is_sent(desk: Desk) -> None:
    desk.open("/login/")
    field = desk.page.get_by_label("Password", exact=True)
    field.fill("secret words")
    button = desk.page.get_by_role("button", name="Show password", pressed=False)
    button.click()
    expect(field).to_have_attribute("type", "text")
    desk.page.evaluate("document.forms[0].addEventListener('submit', (it) => it.preventDefault())")
    desk.page.get_by_label("Username").fill("bea")
    desk.page.get_by_role("button", name="Log in").click()
    expect(field).to_have_attribute("type", "password")
