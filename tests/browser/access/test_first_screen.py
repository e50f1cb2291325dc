"""What a decision needs is on the first screen: why, unusual values, and the call or the answer, above the bar."""

from dataclasses import replace

import pytest
from playwright.sync_api import expect

from approvals.web.request import request_page
from runtime.core.values.enums import EffectClass, GateKind
from runtime.core.values.json_values import action_digest, sha256_of
from runtime.ports.approvals import ReviewSnapshot
from tests.bench.sides import tasks
from tests.browser.conftest import Desk
from tests.support import seeds
from tests.support.seeds import Cast

pytestmark = pytest.mark.browser

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
        action_digest=action_digest(
            tool=path[-1],
            schema=sha256_of(schema),
            args=args,
            path=path,
            effect=EffectClass.IDEMPOTENT,
        ),
    )


def test_nine_of_ten_decisions_need_no_scroll(
    desk: Desk, cast: Cast, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_page, "_agent_texts", lambda *_: [REASON])
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
