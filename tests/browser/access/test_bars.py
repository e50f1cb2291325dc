"""The bars of a request: they leave room for the call, and stay within reach."""

from dataclasses import replace
from typing import Any

import pytest
from playwright.sync_api import Page, expect
from pytest_django import Settings

from approvals.models import Approval
from approvals.web.request import request_page
from runtime.core.values.enums import EffectClass, GateKind
from runtime.core.values.json_values import hash_action, hash_value
from runtime.ports.approvals import ReviewSnapshot
from tests.bench.sides import tasks
from tests.browser.conftest import Desk
from tests.support import seeds
from tests.support.office import Office, reseal
from tests.support.seeds import Cast

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
    assert _box(desk.page, "#odd")["y"] < bars[1]["y"]


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
    if page.get_by_role("textbox", name="Remark").is_visible():
        page.keyboard.press("Tab")
    expect(approve).to_be_focused()
    deny.click()
    expect(page.get_by_role("textbox", name="Remark")).to_be_focused()
    for button in (deny, approve):
        expect(button).to_be_in_viewport(ratio=1)


A_CLICK_COUNTS = """() => new Promise((resolve) => {
    const check = () => performance.now() > Math.max(shown, filledAt) + 1000
        ? resolve() : requestAnimationFrame(check)
    check()
})"""


def test_one_remark_serves_a_plain_approval_on_a_phone_and_a_request_for_changes(
    desk: Desk, office: Office
) -> None:
    approved, changed = (office.request(office.start()) for _ in range(2))
    page = desk.page
    desk.log_in("bea")
    page.set_viewport_size({"width": 390, "height": 844})
    desk.open(f"/a/{approved.id}/")
    remark = page.locator("#reason")
    expect(remark).to_be_hidden()
    page.get_by_role("button", name="More ways to act").click()
    page.get_by_role("button", name="Write a remark").click()
    page.keyboard.type("As agreed.")
    expect(page.locator(".told").filter(visible=True)).to_have_count(0)
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".toast")).to_contain_text("Approved")
    desk.open(f"/a/{changed.id}/")
    page.locator("body").press("c")
    page.keyboard.type("One level less.")
    expect(page.locator(".told.changes")).to_contain_text("One level less.")
    expect(page.locator(".told.denies")).to_be_hidden()
    page.keyboard.press("Control+Enter")
    expect(page.locator(".toast, h1", has_text="hanges requested")).to_be_visible()
    decided = Approval.objects.values_list("status", "reason").order_by("status")
    assert list(decided) == [("approved", "As agreed."), ("denied", "One level less.")]


# What a toast lies upon: the parts of the bar, the head of the page, and in the split view the list and the panel.
COVERED = """() => {
    const toast = document.querySelector(".toasts").getBoundingClientRect();
    const parts = [...document.querySelectorAll("h1, .chips, .decide :is(p, label, textarea, input, .btn)")];
    if (isSplit() && !panel.hidden) parts.push(one("#list"), panel);
    const covered = (part) => {
        const box = part.getBoundingClientRect();
        return box.height && !part.closest(".toast") && box.top < toast.bottom && box.bottom > toast.top
            && box.left < toast.right && box.right > toast.left;
    };
    return parts.filter(covered).map((part) => part.textContent.trim());
}"""


@pytest.mark.parametrize("width", [1440, 1024, 390])
def test_the_toast_of_the_last_decision_has_a_place_of_its_own(
    desk: Desk, office: Office, settings: Settings, width: int
) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    _, last = (
        office.request(office.start(args={"username": f"person{number}", "security_level": 1}))
        for number in range(2)
    )
    reseal([last], risk="high")
    page = desk.page
    desk.log_in("bea")
    page.set_viewport_size({"width": width, "height": 844})
    desk.open("/inbox/")
    page.get_by_role("link", name="person0").click()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator("h1", has_text="person1")).to_be_visible()
    undo = page.get_by_role("button", name="Undo")
    expect(undo).to_be_in_viewport(ratio=1)
    assert page.evaluate(COVERED) == []
    toast = _box(page, ".toasts")
    if width == 1440:
        assert toast["x"] + toast["width"] <= _box(page, "#panel")["x"]
    else:
        assert toast["y"] + toast["height"] <= _box(page, ".decide .btn.deny")["y"]
    page.get_by_role("button", name="Deny").click()
    expect(page.locator("#reason")).to_be_focused()
    assert page.evaluate(COVERED) == []
    # Until then a click could be the second one of a double click.
    page.evaluate(A_CLICK_COUNTS)
    page.get_by_role("button", name="Approve…").click()
    expect(page.locator(".second")).to_be_visible()
    if width != 1440:  # a page of its own, where the toast is gone
        return
    expect(undo).to_be_in_viewport(ratio=1)
    assert page.evaluate(COVERED) == []


# The first screen


NUMBER = 20  # each kind of the mix
REASON = (
    "The customer writes that the parcel arrived broken, and sent two pictures. The order confirms "
    "the sum, and nothing was paid back so far."
)
PREVIEW = {
    "shown": {
        "summary": "Pays the money back",
        "changes": [{"what": "paid back so far", "before": 0, "after": 23}],
        "counts": {"mails": 1},
        "targets": ["the customer"],
        "warnings": ["more than the order cost"],
    }
}
LOWEST = """() => {
    const parts = [...document.querySelectorAll("#why, #odd, #what, #your-answer")];
    const bottom = Math.max(...parts.map((it) => it.closest("section").getBoundingClientRect().bottom));
    return bottom - document.querySelector(".decide").getBoundingClientRect().top;
}"""


def _request(task: tasks.Task) -> ReviewSnapshot:
    args, path = task["args"], ("clerk", task["name"])
    schema = seeds.object_of(**{name: {"title": name.capitalize()} for name in args})
    asks = task["name"] == tasks.QUESTION
    return replace(
        seeds.snapshot(seeds.run(), args=args),
        kind=GateKind.QUESTION if asks else GateKind.APPROVAL,
        tool=path[-1],
        path=path,
        schema=schema,
        sentence=" ".join(map(str, args.values())),
        preview=PREVIEW if "euros" in args else None,
        result_schema={"type": "integer"} if asks else None,
        action_digest=hash_action(
            tool=path[-1],
            schema=hash_value(schema),
            args=args,
            path=path,
            effect=EffectClass.IDEMPOTENT,
        ),
    )


def test_nine_of_ten_decisions_need_no_scroll(
    desk: Desk, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_page, "_list_agent_texts", lambda *_: [REASON])
    mix = tasks.mixed(NUMBER).tasks
    approvals = seeds.opened(*map(_request, mix))
    desk.log_in("bea")
    below: dict[int, list[str]] = {1440: [], 390: []}
    for approval in approvals:
        desk.open(f"/a/{approval.id}/")
        expect(desk.page.locator(".decide")).to_be_visible()
        expect(desk.page.locator(".reasons")).to_contain_text(REASON)
        for width, height in ((1440, 900), (390, 844)):
            desk.page.set_viewport_size({"width": width, "height": height})
            if desk.page.evaluate(LOWEST) > 0:
                below[width].append(approval.sentence)
    assert {width: len(those) for width, those in below.items() if len(those) > NUMBER / 10} == {}
