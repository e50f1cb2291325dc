"""What every page must not do: complain, call elsewhere, scroll sideways, or run what agents wrote."""

from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import expect

from approvals.models import Request
from runtime.models import Run
from tests.browser.conftest import Desk, unfold
from tests.support.office import Office

pytestmark = pytest.mark.browser

LOOKS = [(320, "dark"), (320, "light"), (1280, "light"), (1280, "dark")]

HOSTILE: dict[str, Any] = {
    "username": "<img src=x onerror=alert(1)><script>alert(2)</script>\u202e" + "z\u0336" * 80,
    "security_level": 5,
    "note": "https://elsewhere.example/pixel.png " + "x" * 500,
    "<svg onload=alert(3)>": ["deep", {"er": "y" * 300}],
}


@pytest.fixture
def paths(office: Office) -> list[str]:
    """Every page, with the worst an agent can put on it."""
    halt = office.held(why="w" * 500)
    hostile = office.start(args=HOSTILE, key="k" * 200)
    doubt = office.in_doubt()
    cancelled = office.cancel(office.start(args=HOSTILE), reason=HOSTILE["username"])
    office.ask_twice(HOSTILE)
    twice = Request.objects.filter(run=office.start())[0]
    parked = office.start(args=HOSTILE)
    Run.objects.filter(id=parked).update(status="quarantined", reason="x" * 500)
    return [
        "/login/",
        "/inbox/",
        "/runs/",
        f"/runs/{hostile}/",
        f"/runs/{doubt}/",
        f"/a/{office.request(hostile).id}/",
        f"/a/{office.request(doubt).id}/",
        f"/a/{office.in_doubt_request(doubt).id}/",
        f"/a/{twice.id}/",
        f"/a/{office.request(cancelled).id}/",
        f"/runs/{cancelled}/",
        f"/runs/{parked}/",
        f"/runs/{doubt}/cancel/",
        f"/runs/{hostile}/cancel/",
        "/runs/?status=cancelled",
        f"/runs/{hostile}/?tab=transcript",
        f"/a/{halt.id}/",
        f"/runs/{hostile}/fork/2/",
        f"/runs/{hostile}/compare/{cancelled}/",
        "/agents/",
        "/account/",
    ]


def test_pages_are_strict(desk: Desk, paths: list[str]) -> None:
    """Load each page once, on a phone in the dark theme, and check it in the light theme and on a desktop too."""
    dialogs: list[str] = []
    desk.page.on("dialog", lambda dialog: dialogs.append(dialog.message))
    run = next(path for path in paths if path.startswith("/runs/0"))
    visits = [(name, path) for name in ("bea", "admin") for path in paths]
    for name, path in [*visits, *(("admin", of) for of in (f"{run}at/3/", "/people/", "/stops/"))]:
        if path == "/login/":
            desk.log_in(name)
            continue
        desk.look(*LOOKS[0])
        desk.open(path)
        unfold(desk.page)
        assert desk.page.locator("[style], style, script:not([src])").count() == 0, path
        for width, scheme in LOOKS:
            desk.look(width, scheme)
            found = desk.page.evaluate("document.documentElement.scrollWidth")
            assert found <= width, (path, scheme)
    assert (desk.complaints, desk.strays, dialogs) == ([], [], [])


def test_the_page_of_the_api_is_strict_too(desk: Desk, suspended: UUID) -> None:
    desk.log_in("ada")
    desk.open("/api/v1/docs")
    post = desk.page.get_by_role("button", name="POST /api/v1/runs").first
    post.click()
    expect(desk.page.get_by_text("business_key").first).to_be_visible()
    assert (desk.complaints, desk.strays) == ([], [])


def test_the_policy_lets_no_inline_script_run(desk: Desk, suspended: UUID) -> None:
    answer = desk.page.goto(f"{desk.url}/login/")
    assert answer is not None
    policy = answer.headers["content-security-policy"]
    assert "script-src 'self';" in f"{policy};"
    assert "style-src 'self';" in f"{policy};"
    assert "unsafe" not in policy


def test_the_decision_bar_leaves_focus_visible(desk: Desk, asked: str) -> None:
    desk.page.set_viewport_size({"width": 390, "height": 700})
    desk.log_in("bea")
    desk.open(asked)
    conversation = desk.page.locator("summary", has_text="Conversation")
    conversation.focus()
    bar, focused = (one.bounding_box() for one in (desk.page.locator(".decide"), conversation))
    assert bar is not None
    assert focused is not None
    assert focused["y"] + focused["height"] <= bar["y"]
