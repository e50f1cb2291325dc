"""The pages of runs in a browser: columns are wide enough to read, and a refresh keeps what a person ticked."""

import re
from uuid import UUID

import pytest
from playwright.sync_api import expect

from tests.browser.access.test_axe import replayed
from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser

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
