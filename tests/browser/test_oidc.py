"""A browser signs in at an OpenID provider and logs out there, on pages that axe finds nothing wrong with."""

import pytest
from playwright.sync_api import expect
from pytest_django.live_server_helper import LiveServer

from tests.browser.access.axe import Axe
from tests.browser.conftest import Desk
from tests.support.openid_provider import at_provider, openid_provider
from tests.support.seeds import Cast

pytestmark = pytest.mark.browser


def test_a_browser_signs_in_and_out_at_the_provider(
    desk: Desk, live_server: LiveServer, cast: Cast
) -> None:
    axe, page = Axe(desk, []), desk.page
    with openid_provider() as acme, at_provider(acme, live_server.url):
        desk.open("/login/?next=/account/")
        assert axe.violations() == []
        page.get_by_role("link", name="Log in with Acme").click()
        expect(page.get_by_text("You are logged in as zoe@acme.example")).to_be_visible()
        assert axe.violations() == []
        page.locator("main").get_by_role("button", name="Log out", exact=True).click()
        page.wait_for_url("**/login/")
        assert "/logout" in acme.asked
        desk.log_in("ada")
        desk.open("/account/")
        page.get_by_role("link", name="Connect Acme").click()
        expect(page.get_by_role("heading", name="Connect a sign-in")).to_be_visible()
        assert axe.violations() == []
        desk.strays[:] = [one for one in desk.strays if not one.startswith(acme.issuer)]
    assert (desk.strays, desk.complaints) == ([], [])
