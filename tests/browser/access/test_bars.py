"""The bars of a request: they leave room for the call, and stay within reach."""

from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Desk
from tests.support.office import Office

pytestmark = pytest.mark.browser

SHARE = 0.2  # of the height of a phone


def _box(page: Page, part: str) -> dict[str, Any]:
    found = page.locator(part).first.bounding_box()
    assert found is not None
    return dict(found)


def test_bars_take_a_fifth_of_a_phone_and_the_difference_is_above(
    desk: Desk, office: Office
) -> None:
    office.approve(office.start())
    run = office.start(args={"username": "newhire", "security_level": 5})
    desk.log_in("bea")
    desk.page.set_viewport_size({"width": 390, "height": 844})
    desk.open(f"/a/{office.request(run).id}/")
    bars = [_box(desk.page, part) for part in (".top", ".decide", ".rail")]
    assert sum(bar["height"] for bar in bars) <= SHARE * 844
    assert _box(desk.page, ".change")["y"] < bars[1]["y"]


@pytest.mark.parametrize(("width", "height"), [(720, 450), (844, 390), (1440, 900)])
def test_the_buttons_are_in_reach_and_deny_asks_for_a_reason(
    desk: Desk, asked: str, width: int, height: int
) -> None:
    page = desk.page
    desk.log_in("bea")
    page.set_viewport_size({"width": width, "height": height})
    desk.open(asked)
    page.wait_for_load_state()
    deny, approve = (page.get_by_role("button", name=name) for name in ("Deny", "Approve"))
    for button in (deny, approve):
        expect(button).to_be_in_viewport(ratio=1)
    deny.focus()
    page.keyboard.press("Tab")
    expect(approve).to_be_focused()
    deny.click()
    expect(page.get_by_role("textbox", name="Reason")).to_be_focused()
    for button in (deny, approve):
        expect(button).to_be_in_viewport(ratio=1)
