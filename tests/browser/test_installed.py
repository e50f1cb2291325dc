"""The installed app on a phone: the browser may install it, it decides in few taps, and says that it is offline."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect
from pytest_django.live_server_helper import LiveServer

from approvals.notices import transports
from tests.browser.conftest import Desk, window
from tests.support.commands import CHROMIUM, FLAGS
from tests.support.notices import look
from tests.support.office import Office, reseal
from tests.support.people import until
from tests.support.push_service import serving_push
from tests.support.seeds import moment

pytestmark = pytest.mark.browser

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}


@pytest.fixture
def app(chromium: Browser, live_server: LiveServer, tmp_path: Path) -> Iterator[Page]:
    """A page with a profile of its own: a private window installs nothing."""
    context = chromium.browser_type.launch_persistent_context(
        tmp_path, executable_path=str(CHROMIUM), args=FLAGS
    )
    yield context.pages[0]
    context.close()


def test_the_browser_may_install_it(app: Page, live_server: LiveServer) -> None:
    app.goto(f"{live_server.url}/login/")
    session = app.context.new_cdp_session(app)
    assert session.send("Page.getInstallabilityErrors") == {"installabilityErrors": []}
    assert session.send("Page.getAppManifest")["errors"] == []


def test_offline_it_shows_a_page_that_says_so_and_keeps_no_data(
    chromium: Browser, live_server: LiveServer, office: Office, asked: str
) -> None:
    with window(chromium, live_server.url, service_workers="allow") as desk:
        page = desk.page
        desk.log_in("bea")
        desk.open(asked)
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        desk.open("/inbox/")  # through the worker
        kept = page.evaluate(
            """async () => {
                const found = [];
                for (const name of await caches.keys())
                    for (const one of await (await caches.open(name)).keys()) found.push(new URL(one.url).pathname);
                return found;
            }"""
        )
        assert "/offline/" in kept
        assert [path for path in kept if not path.startswith("/static/")] == ["/offline/"]
        page.context.set_offline(True)
        desk.open(asked)
        expect(page.get_by_role("heading", name="You are offline")).to_be_visible()
        expect(page.get_by_text("newhire")).to_have_count(0)
        assert (
            page.evaluate("getComputedStyle(document.querySelector('.btn')).borderRadius") != "0px"
        )
        page.context.set_offline(False)
        page.get_by_role("link", name="Try again").click()
        expect(page.get_by_role("heading", name="Set the privileges")).to_be_visible()


def test_a_push_message_is_shown_with_the_page_that_a_click_opens(
    chromium: Browser, live_server: LiveServer, office: Office, asked: str
) -> None:
    with window(chromium, live_server.url, service_workers="allow") as desk:
        page = desk.page
        page.context.grant_permissions(["notifications"], origin=live_server.url)
        desk.log_in("bea")
        desk.open("/inbox/")
        page.evaluate("navigator.serviceWorker.ready.then(() => true)")
        session = page.context.new_cdp_session(page)
        registrations: list[str] = []
        session.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda event: registrations.extend(
                row["registrationId"] for row in event["registrations"]
            ),
        )
        session.send("ServiceWorker.enable")
        page.evaluate("navigator.serviceWorker.getRegistration().then(() => true)")
        message = {"title": "1 request waits for you", "text": "High", "path": asked, "tag": "a"}
        delivery = {
            "origin": live_server.url,
            "registrationId": registrations[0],
            "data": json.dumps(message),
        }
        notices = """async () => {
            const notices = await (await navigator.serviceWorker.ready).getNotifications();
            return notices.length ? notices.map(({ title, body, data }) => [title, body, data]) : null;
        }"""

        def deliver() -> Any:
            """A busy browser drops a message; one that comes again has the same tag, and so takes its place."""
            session.send("ServiceWorker.deliverPushMessage", delivery)
            return page.evaluate(notices)

        row = [message["title"], message["text"], asked]
        assert until(deliver, "the notice") == [row]


def test_a_browser_adds_itself_as_a_channel(
    chromium: Browser, live_server: LiveServer, office: Office, settings: Any
) -> None:
    """Chromium without Google's push service subscribes nowhere: its answer here is that of one on this machine."""
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True
    with (
        serving_push() as service,
        window(chromium, live_server.url, service_workers="allow") as desk,
    ):
        page = desk.page
        page.context.grant_permissions(["notifications"], origin=live_server.url)
        page.add_init_script(
            f"""PushManager.prototype.subscribe = async ({{ applicationServerKey }}) => {{
                if (applicationServerKey !== "{transports.push_key()}") throw new Error("another key");
                return {json.dumps(service.subscription)};
            }};"""
        )
        desk.log_in("bea")
        desk.open("/account/notices/")
        page.get_by_label("By").select_option("push")
        expect(page.get_by_label("Address")).to_be_hidden()
        with page.expect_navigation():
            page.get_by_role("button", name="Add").click()
        expect(page.get_by_text("A first notice follows").first).to_be_visible()
        look()
        assert [message["title"] for message in service.messages] == ["Push is on"]
        page.context.clear_permissions()
        desk.open("/account/notices/")
        page.get_by_text("Add a channel").click()
        page.get_by_label("By").select_option("push")
        page.get_by_role("button", name="Add").click()
        expect(page.get_by_role("alert")).to_contain_text("does not allow notifications")


class Thumb:
    """Counts its taps; the first one opens the app."""

    def __init__(self) -> None:
        self.taps = 1

    def tap(self, target: Locator) -> None:
        target.tap()
        self.taps += 1


@pytest.mark.parametrize(("risk", "taps"), [("low", 3), ("medium", 3), ("high", 4)])
def test_a_phone_decides_the_most_urgent_request_in_few_taps(
    chromium: Browser, live_server: LiveServer, office: Office, risk: str, taps: int
) -> None:
    """Among others, without scrolling the list: at a second for each tap, thirty seconds leave 26 to read."""
    asked = [office.request(office.start()) for _ in range(7)]
    reseal([urgent := asked[3]], risk=risk, expires_at=moment(1800))
    thumb = Thumb()
    with window(chromium, live_server.url, **PHONE) as desk:
        desk.log_in("bea")
        desk.page.clock.install()
        desk.open("/")  # where the installed app starts
        row = desk.page.locator(".row .t").first
        expect(row).to_be_in_viewport()
        expect(row).to_have_attribute("href", re.compile(str(urgent.id)))
        thumb.tap(row)
        approve = desk.page.get_by_role("button", name="Approve")
        desk.page.set_viewport_size({"width": 320, "height": 640})
        assert approve.evaluate("it => it.scrollWidth <= it.clientWidth"), "its words are cut"
        thumb.tap(approve)
        if risk == "high":
            yes = desk.page.get_by_role("button", name="Yes, approve: newhire")
            expect(yes).to_be_visible()
            expect(desk.page.locator("#confirm")).to_be_hidden()
            desk.page.wait_for_load_state()  # the scripts have noted when the page was shown
            desk.page.clock.run_for(1000)  # the second click of a double click does not count
            thumb.tap(yes)
        expect(desk.page.locator(".toast", has_text="Approved")).to_be_visible()
    urgent.refresh_from_db()
    assert urgent.status == "approved"
    assert thumb.taps == taps <= 4


def test_the_badge_follows_the_count(desk: Desk, office: Office) -> None:
    desk.page.add_init_script(
        """window.badges = [];
        navigator.setAppBadge = async (number) => badges.push(number);
        navigator.clearAppBadge = async () => badges.push(0);"""
    )
    run = office.start()
    desk.log_in("bea")
    desk.page.clock.install()
    desk.open("/inbox/")
    assert desk.page.evaluate("badges.at(-1)") == 1
    office.approve(run)
    desk.page.clock.run_for(4000)
    expect(desk.page.locator("[data-count=mine]").first).to_have_text("0")
    assert desk.page.evaluate("badges.at(-1)") == 0
