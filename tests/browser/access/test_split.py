"""The split view: the list and the open request side by side, decided by keys without a page load."""

import re
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from approvals.models import Approval, ApprovalClaim, ApprovalViewer
from approvals.reads import inbox
from approvals.web.components.decision_form import REASONS
from tests.browser.conftest import Desk
from tests.support.office import Office, reseal

pytestmark = pytest.mark.browser

NUMBER, PAGE = 10, 4  # requests in all, and on a page of the list
HIGH = (2, 7)  # the places of requests of high risk
ODD = 3  # the place of one that is denied, the last one of its page
ASKED = 5  # the place of a question


@pytest.fixture
def bea(desk: Desk, office: Office, monkeypatch: pytest.MonkeyPatch) -> Page:
    monkeypatch.setattr(inbox, "LIMIT", PAGE)
    desk.log_in("bea")
    desk.look(1440, "light")
    for place in range(NUMBER):
        if place == ASKED:
            office.question(f"How many has person{place}?", {"type": "integer"})
        else:
            office.start(args={"username": f"person{place}", "security_level": 1})
    approvals = list(Approval.objects.order_by("created_at"))
    reseal([approvals[place] for place in HIGH], risk="high")
    desk.open("/inbox/")
    desk.page.evaluate("window.stayed = true")
    return desk.page


def _sentence(place: int) -> str:
    if place == ASKED:
        return f"The agent asks: How many has person{place}?"
    return f"Set the privileges of person{place} to 1"


def _shows(page: Page, place: int) -> None:
    """Wait until the list and the panel show this request, long enough to be decided by a key."""
    expect(page.locator("#panel h1")).to_have_text(_sentence(place))
    expect(page.locator(".row[aria-current] .t")).to_have_text(_sentence(place))
    while not page.evaluate("!panel.inert && performance.now() > filledAt + 1000"):
        pass


def test_mixed_requests_on_several_pages_are_decided_by_two_keys_each(bea: Page) -> None:
    keys = 0

    def press(key: str) -> None:
        nonlocal keys
        keys += 1
        bea.keyboard.press(key)

    for place in range(NUMBER - 1):
        _shows(bea, place)
        if place == ODD:
            press("2")  # the second suggested reason
            expect(bea.get_by_role("button", name="Deny")).to_be_focused()
            assert not Approval.objects.filter(status="denied").exists()
            press("Enter")
        elif place in HIGH:
            press("a")
            expect(bea.locator("#confirm")).to_be_focused()
            bea.keyboard.type(bea.locator("label[for=confirm] b").inner_text())
            press("Enter")
        elif place == ASKED:
            press("a")
            expect(bea.get_by_label("Answer", exact=True)).to_be_focused()
            bea.keyboard.type("12")
            press("Enter")
        else:
            press("a")
        verdict = {ODD: "Denied", ASKED: "Answered"}.get(place, "Approved")
        expect(bea.locator(".toast")).to_contain_text(f"{verdict}: {_sentence(place)}")
    _shows(bea, NUMBER - 1)
    press("a")
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert keys <= 2 * NUMBER
    assert bea.evaluate("window.stayed") is True
    assert Approval.objects.get(status="denied").reason == REASONS[1]
    decided = [approval.status for approval in Approval.objects.order_by("created_at")]
    others = {ODD: "denied", ASKED: "answered"}
    assert decided == [others.get(place, "approved") for place in range(NUMBER)]


MEASURED = """() => {
    dispatchEvent(new Event("pagehide"));
    return JSON.parse(sessionStorage.reading).map(([key]) => key.split(" ").pop());
}"""


def test_the_first_request_shows_itself_and_counts_as_read_only_if_no_other_is_chosen(
    bea: Page, office: Office
) -> None:
    first, second, *_ = Approval.objects.order_by("created_at")
    _shows(bea, 0)
    assert "open=" not in bea.url
    expect(bea.locator("body")).to_be_focused()
    assert bea.evaluate(MEASURED) == [str(first.id)]
    bea.evaluate("beats()")
    office.start(args={"username": "person10", "security_level": 1})
    reseal([Approval.objects.latest("created_at")], expires_at=first.created_at)
    bea.evaluate("regions.forEach(refresh)")
    expect(bea.get_by_role("button", name="1 new")).to_be_visible()
    _shows(bea, 0)
    assert not ApprovalViewer.objects.exists()
    bea.keyboard.press("j")
    _shows(bea, 1)
    assert "open=" in bea.url
    assert bea.evaluate(MEASURED) == [str(second.id)]
    bea.evaluate("beats()")
    assert ApprovalViewer.objects.get().approval_id == second.id


def test_the_panel_follows_the_list_from_page_to_page_and_a_reload_keeps_it(bea: Page) -> None:
    _shows(bea, 0)
    bea.keyboard.press("j")
    _shows(bea, 1)
    bea.get_by_role("link", name="person3").click()
    _shows(bea, 3)
    expect(bea.get_by_role("link", name="person3")).to_be_focused()
    bea.keyboard.press("j")
    _shows(bea, 4)
    assert bea.evaluate("window.stayed") is True
    bea.reload()
    _shows(bea, 4)
    bea.keyboard.press("j")
    _shows(bea, 5)
    bea.keyboard.press("k")
    _shows(bea, 4)
    bea.keyboard.press("Enter")  # the page of the request alone
    expect(bea.get_by_role("link", name="← Inbox")).to_be_visible()


def test_a_key_never_decides_the_request_before(bea: Page, office: Office) -> None:
    """The next request is chosen, and the panel still shows the one before."""
    _shows(bea, 0)
    bea.route("**/a/*/", lambda route: None)
    bea.keyboard.press("j")
    for key in "aadt":
        bea.keyboard.press(key)
    expect(bea.locator("#panel [data-writing]")).to_have_count(0)
    bea.unroute("**/a/*/")
    bea.reload()
    _shows(bea, 0)
    assert not Approval.objects.exclude(status="pending").exists()
    assert not ApprovalClaim.objects.exists()


@pytest.mark.parametrize("way", ["by itself", "by the button"])
def test_a_request_that_could_not_be_loaded_leaves_the_panel_empty_until_it_is(
    bea: Page, way: str
) -> None:
    """The panel would show, and a key decide, the request before the row that is marked."""
    _shows(bea, 0)
    refused = r"/(a/.*|healthz)$" if way == "by the button" else r"/a/.*"
    bea.route(re.compile(refused), lambda route: route.abort())
    bea.keyboard.press("j")
    expect(bea.locator("#panel")).to_have_text("Could not load.Try again")
    expect(bea.locator(".row[aria-current=true] .t")).to_have_text(_sentence(1))
    for key in "adt1":
        bea.keyboard.press(key)
    bea.unroute(re.compile(refused))
    if way == "by the button":
        bea.locator("#panel").get_by_role("button", name="Try again").click()
    _shows(bea, 1)
    expect(bea.locator(".live")).not_to_have_text("Offline")
    assert not Approval.objects.exclude(status="pending").exists()
    assert not ApprovalClaim.objects.exists()


def test_no_row_is_marked_while_another_request_is_open(bea: Page) -> None:
    """The next request stands on a page of the list that cannot be fetched, and a box is ticked by mouse."""
    bea.get_by_role("link", name="person3").click()
    _shows(bea, PAGE - 1)
    bea.locator(".row").first.get_by_role("checkbox").click()
    expect(bea.locator(".row[aria-current=true] .t")).to_have_text(_sentence(PAGE - 1))
    bea.route("**/inbox/?*", lambda route: route.abort())
    bea.keyboard.press("a")
    expect(bea.locator("#panel h1")).to_have_text(_sentence(PAGE))
    expect(bea.locator(".row[aria-current=true]")).to_have_count(0)


def test_a_refused_form_and_a_request_decided_elsewhere_stay_beside_the_list(
    bea: Page, office: Office
) -> None:
    _shows(bea, 0)
    bea.get_by_role("button", name="More ways to act").click()
    bea.locator("summary", has_text="Give the result yourself").click()
    bea.locator("#panel textarea[name=result]").fill("[1,")
    bea.get_by_role("button", name="Answer instead").click()
    expect(bea.get_by_role("alert")).to_contain_text("Not decided: result is not JSON")
    expect(bea.locator("#panel textarea[name=result]")).to_have_value("[1,")
    bea.locator(f".row:nth-child({HIGH[0] + 2}) .t").click()
    _shows(bea, HIGH[0])
    bea.get_by_role("button", name="Approve…").click()
    expect(bea.locator("#confirm")).to_be_focused()
    bea.get_by_role("link", name="Back").click()
    expect(bea.locator("#confirm")).to_have_count(0)
    bea.get_by_role("link", name="person0").click()
    _shows(bea, 0)
    first = Approval.objects.order_by("created_at")[0]
    office.deny(UUID(str(first.run_id)), "Elsewhere.")
    bea.get_by_role("button", name="Approve").click()
    expect(bea.get_by_role("alert")).to_contain_text("decided this on")
    assert bea.evaluate("window.stayed") is True


def test_a_filter_that_hides_the_open_request_closes_its_panel(bea: Page) -> None:
    panel = bea.locator("#panel")
    bea.get_by_role("link", name=_sentence(0)).click()
    _shows(bea, 0)
    bea.locator("#q").fill("person0")
    expect(bea.get_by_text("Filtered: 1")).to_be_visible()
    expect(panel).to_be_visible()
    bea.locator("#q").fill("person1")
    expect(panel).to_be_hidden()
    assert "open=" not in bea.url
    bea.get_by_role("link", name=_sentence(1)).click()
    _shows(bea, 1)
    bea.get_by_role("textbox", name="Remark").fill("Why now?")
    bea.locator("#q").fill("person2")
    expect(panel.get_by_text("The list does not show this request any more")).to_be_visible()
    bea.locator("#q").fill("person1")
    expect(panel.get_by_text("The list does not show this request any more")).to_have_count(0)
    expect(bea.get_by_role("textbox", name="Remark")).to_have_value("Why now?")


HEIGHT_BESIDE_A_LONG_REQUEST = """() => {
    const end = document.createElement('div');
    end.style.cssText = 'padding-top: 3000px; flex: none';
    end.innerHTML = '<span class="vh">for screen readers</span>';
    document.getElementById('panel').append(end);
    return document.documentElement.scrollHeight;
}"""


def test_a_question_opens_beside_the_list_which_scrolls_alone(desk: Desk, office: Office) -> None:
    office.question("Which cost centre pays?", {"type": "string"})
    desk.log_in("bea")
    desk.look(1440, "light")
    desk.open("/inbox/")
    desk.page.get_by_role("link", name="Questions 1").click()
    desk.page.wait_for_url("**/inbox/?q=*")  # with its scripts
    desk.page.get_by_role("link", name="The agent asks: Which cost centre pays?").click()
    desk.page.get_by_label("Answer", exact=True).fill("4711")
    assert desk.page.evaluate(HEIGHT_BESIDE_A_LONG_REQUEST) == 800
    desk.page.keyboard.press("Control+Enter")
    expect(desk.page.locator(".toast, h1", has_text="Answered")).to_be_visible()
    assert Approval.objects.get().status == "answered"
