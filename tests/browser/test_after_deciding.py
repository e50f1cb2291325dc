"""Pages after a decision, at a limit and with look-alike letters, read in a browser."""

import pytest
from playwright.sync_api import expect

from runtime.core.budgets import Budget
from runtime.ports.effects import ToolFailure
from tests.browser.conftest import Desk
from tests.support.fake_ports import FakeTool
from tests.support.office import Office

pytestmark = pytest.mark.browser


def test_pages_state_the_real_status_after_a_decision(desk: Desk, office: Office) -> None:
    page, main = desk.page, desk.page.locator("main")
    office.approve(office.start())  # the next requests are compared with it
    fault = ToolFailure(error="no rights for that")
    office.effects.tools["set_privileges"] = FakeTool(gated=True, body=lambda request: fault)
    odd = {"username": "newhir\u0435 ", "security_level": 3}
    request, short = office.request(office.start(args=odd)), office.short(Budget(turns=1))

    desk.log_in("bea")
    desk.open(f"/a/{request.id}/")
    similar = page.get_by_role("region", name="Compared with the last approval")
    expect(similar).to_contain_text("It ends with 1 space, before with no spaces.")
    expect(similar).to_contain_text("mixes Latin and Cyrillic letters")
    expect(main).not_to_contain_text("U+0020")
    page.get_by_role("textbox", name="Reason").fill("Her lead agreed.")
    page.get_by_role("button", name="Approve").click()
    box = page.locator(".note[role=status]")
    expect(box).to_contain_text("approved, a worker starts it next")
    expect(box).to_contain_text("Her lead agreed.")
    expect(box).not_to_contain_text("waiting for a person")

    office.advance(request.run_id)
    page.reload()
    expect(box).to_have_class("note danger")
    expect(box).to_contain_text("Status: failed")
    expect(box).to_contain_text("no rights for that")
    expect(box).not_to_contain_text("may start once")

    desk.open("/inbox/?view=decided")
    row = page.get_by_role("listitem").filter(has=page.get_by_text("no rights for that"))
    expect(row.get_by_text("Failed", exact=True)).to_be_visible()
    expect(row.locator(".t")).to_have_css("text-decoration-line", "none")

    desk.open(f"/a/{short.id}/")
    expect(page.get_by_text("1 used, 1 allowed")).to_be_visible()
    expect(main).not_to_contain_text("not in the schema")

    desk.log_in("admin")
    desk.open("/stops/")
    expect(page.get_by_label("Which agent")).to_have_value("")


def test_an_ended_run_removes_the_message_form_unless_used(desk: Desk, office: Office) -> None:
    """The form is outside the refreshed part. The refresh of an ended run has no `data-live`."""
    page, run = desk.page, office.start()
    desk.log_in("ada")
    desk.open(f"/runs/{run}/")
    form = page.get_by_role("region", name="Write to the agent")
    expect(form).to_be_visible()
    page.evaluate("document.getElementById('live').removeAttribute('data-live')")
    expect(form).to_be_hidden()
    form.locator("textarea").evaluate("field => { field.value = 'Wait.' }")
    expect(form).to_be_visible()
