"""A question in a browser: answered by keyboard and beside the list; a wrong answer keeps the typed text."""

import re

import pytest
from playwright.sync_api import Browser, expect
from pytest_django.live_server_helper import LiveServer

from approvals.models import Request
from tests.browser.conftest import Desk, window
from tests.support.office import Office

pytestmark = pytest.mark.browser
COST = {
    "type": "object",
    "properties": {
        "number": {"type": "integer", "minimum": 1000, "title": "Number"},
        "kind": {"enum": ["staff", "project"], "title": "Kind"},
    },
    "required": ["number", "kind"],
}
HEIGHT_BESIDE_A_LONG_REQUEST = """() => {
    const end = document.createElement('div');
    end.style.cssText = 'padding-top: 3000px; flex: none';
    end.innerHTML = '<span class="vh">for screen readers</span>';
    document.getElementById('panel').append(end);
    return document.documentElement.scrollHeight;
}"""


def test_a_reviewer_answers(desk: Desk, office: Office) -> None:
    question = office.question("Which cost centre pays?", COST)
    desk.log_in("bea")
    desk.open(f"/a/{question.id}/")
    page = desk.page
    page.keyboard.press("a")  # the key that approves elsewhere
    expect(page.get_by_label("Number")).to_be_focused()
    page.get_by_label("Number").fill("12")
    page.get_by_label("Kind").select_option("staff")
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.get_by_text("must be at least 1000")).to_be_visible()
    expect(page.get_by_label("Kind")).to_have_value('"staff"')
    page.get_by_label("Number").fill("4711")
    page.get_by_label("Number").press("Enter")
    expect(page.get_by_role("heading", name="Answered by bea")).to_be_visible()
    question.refresh_from_db()
    assert question.status == "answered"


def test_it_opens_beside_the_list_and_leads_on(
    chromium: Browser, live_server: LiveServer, office: Office
) -> None:
    office.question("Which cost centre pays?", {"type": "string"})
    with window(chromium, live_server.url, viewport={"width": 1440, "height": 900}) as desk:
        desk.log_in("bea")
        desk.open("/inbox/")
        desk.page.get_by_role("link", name="Questions 1").click()
        desk.page.wait_for_url("**/inbox/?q=*")  # with its scripts
        desk.page.get_by_role("link", name="The agent asks: Which cost centre pays?").click()
        desk.page.get_by_label("Answer", exact=True).fill("4711")
        assert (
            desk.page.evaluate(HEIGHT_BESIDE_A_LONG_REQUEST) == 900
        )  # only the list and the request scroll
        desk.page.keyboard.press("Control+Enter")
        expect(desk.page.get_by_text(re.compile(r"Answered( by|:|\.)")).first).to_be_visible()
    assert Request.objects.get().status == "answered"
