"""The inbox as axe sees it while others are at work: with news, struck rows, and the sheet of keys."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser


def _violations(page: Page) -> list[str]:
    # axe draws conclusions from colours that are still on their way.
    page.evaluate("Promise.all(document.getAnimations().map((it) => it.finished))")
    found = Axe().run(page).response["violations"]
    return [f"{rule['id']}: {rule['nodes'][0]['html']}" for rule in found]


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (360, "dark")])
def test_the_inbox_has_no_violations(desk: Desk, office: Office, width: int, scheme: str) -> None:
    page = desk.page
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    page.set_viewport_size({"width": width, "height": 800})
    desk.log_in("bea")
    run = office.start()
    office.in_doubt()
    page.clock.install()
    desk.open("/inbox/")
    page.keyboard.press("j")
    office.approve(run)  # its mail is in doubt, too
    page.clock.run_for(4000)
    expect(page.get_by_role("button", name="1 new")).to_be_visible()
    expect(page.locator(".gone")).to_have_count(1)
    assert _violations(page) == [], "news"
    page.keyboard.press("?")
    expect(page.get_by_role("dialog", name="Shortcuts")).to_be_visible()
    assert _violations(page) == [], "keys"
