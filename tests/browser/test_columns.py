"""Columns of text are wide enough to be read."""

import pytest

from tests.browser.conftest import Desk
from tests.desk.office import Office

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("width", [1440, 1920])
def test_two_runs_side_by_side_have_room(desk: Desk, office: Office, width: int) -> None:
    left, right = office.start(), office.start(args={"username": "another", "security_level": 2})
    desk.page.set_viewport_size({"width": width, "height": 900})
    desk.log_in("bea")
    desk.open(f"/runs/{left}/compare/{right}/")
    place = desk.page.locator("section[aria-labelledby=differences] li").first
    assert place.locator("div").first.evaluate("it => it.clientWidth") > 600


@pytest.mark.parametrize("width", [1440, 1920])
def test_what_an_entry_changed_has_room_and_stands_first(
    desk: Desk, office: Office, width: int
) -> None:
    run = office.start()
    desk.page.set_viewport_size({"width": width, "height": 900})
    desk.log_in("admin")
    desk.open(f"/runs/{run}/at/6/")
    moves = desk.page.locator("section[aria-labelledby=moves] li")
    assert moves.first.locator("div").first.evaluate("it => it.clientWidth") > 600
    assert desk.page.evaluate("document.documentElement.scrollHeight") < 4000
