"""Signing in with a passkey and at a provider."""

import pytest
from django.contrib.auth.models import User
from playwright.sync_api import expect
from pytest_django import Settings
from pytest_django.live_server_helper import LiveServer

from approvals.models import Approval
from approvals.rules.policy import Demands
from approvals.signed import statements
from tests.browser.access.axe import Axe
from tests.browser.conftest import Desk, unfold
from tests.support.office import reseal
from tests.support.openid_provider import at_provider, openid_provider
from tests.support.seeds import PASSWORD, Cast

pytestmark = pytest.mark.browser
AUTHENTICATOR = {
    "protocol": "ctap2",
    "transport": "internal",
    "hasResidentKey": True,
    "hasUserVerification": True,
    "isUserVerified": True,
    "automaticPresenceSimulation": True,
}


def test_a_passkey_is_added_logs_in_and_confirms_a_decision(
    desk: Desk, live_server: LiveServer, asked: str, cast: Cast, settings: Settings
) -> None:
    settings.PUBLIC_URL = live_server.url
    axe, page = Axe(desk, []), desk.page
    devices = page.context.new_cdp_session(page)
    devices.send("WebAuthn.enable")
    devices.send("WebAuthn.addVirtualAuthenticator", {"options": AUTHENTICATOR})

    desk.log_in("bea")
    desk.open("/account/")
    unfold(page)
    assert axe.violations() == []
    section = page.locator("#second")
    section.get_by_label("Your password").fill(PASSWORD)
    section.get_by_role("button", name="Add passkey").click()
    expect(page.get_by_role("heading", name="Recovery codes")).to_be_visible()
    assert axe.violations() == []

    page.context.clear_cookies()
    desk.open("/login/?next=/account/")
    page.get_by_label("Username").fill("bea")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    assert axe.violations() == []
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("You are logged in as bea")).to_be_visible()

    approval = Approval.objects.get()
    reseal([approval], rule=Demands(rule="Fresh", step_up=True).stored())
    desk.log_in("bea")  # a session without a second factor
    desk.open(asked)
    assert axe.violations() == []
    page.get_by_role("button", name="Use a passkey").click()
    expect(page.get_by_text("You can decide now")).to_be_visible()
    expect(page.get_by_role("heading", name="Confirm that it is you")).to_have_count(0)
    page.get_by_role("button", name="Deny").click()
    page.get_by_role("textbox", name="Remark").fill("Not this one")
    page.get_by_role("button", name="Deny").click()
    expect(page.get_by_text("Not this one").first).to_be_visible()
    approval.refresh_from_db()
    proof = statements.read(approval).authenticated
    assert proof is not None
    assert proof["how"] == "password+passkey"
    assert User.objects.get(username="bea").second_factors.filter(kind="passkey").count() == 1
    assert (desk.strays, desk.complaints) == ([], [])


# A provider


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
