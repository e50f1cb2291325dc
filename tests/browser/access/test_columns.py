"""Every page at three widths: no column of text is too narrow, and no page too high for its content."""

from pathlib import Path
from typing import Any

import pytest
from django.test import override_settings

from runtime.core.budgets import Budget
from runtime.core.enums import EffectClass
from runtime.models import BlobReference, Run
from runtime.ports.effects import ToolResult
from tests.browser.conftest import Desk
from tests.support.cast import Cast
from tests.support.fake_ports import FakeTool
from tests.support.office import Office
from tests.support.published import object_of, published

pytestmark = pytest.mark.browser

WIDTHS = (390, 1440, 1920)
CHARACTERS = 12
MATRIX = Path(__file__).parents[2] / "web" / "matrix.txt"
NO_PAGES = ("/healthz", "/readyz", "/api/", "/contents/")  # the last is a result as plain text
BIG = FakeTool(effect=EffectClass.IDEMPOTENT, body=lambda request: ToolResult(value="x" * 70_000))

# Texts that wrap in less than that many characters of their own font, and the height beside the allowed one:
# a window, a line for each block, and the texts themselves on less than half of the width.
MEASURED = """
(characters) => {
  const main = document.querySelector("main");
  const pen = document.createElement("canvas").getContext("2d");
  const narrow = [];
  let area = 0;
  const walker = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    if (!text || element.closest(".vh, svg, script, option, textarea") || !element.checkVisibility()) continue;
    let block = element;
    while (["inline", "contents"].includes(getComputedStyle(block).display)) block = block.parentElement;
    const style = getComputedStyle(block);
    pen.font = getComputedStyle(element).font;
    const height = parseFloat(style.lineHeight) || 1.5 * parseFloat(style.fontSize);
    area += pen.measureText(text).width * height + (text.match(/\\n/g) ?? []).length * height * main.clientWidth * 0.45;
    if (text.length < characters) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    const lines = new Set([...range.getClientRects()].map((it) => Math.round(it.top))).size;
    const room = block.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (lines > 2 && room < characters * pen.measureText("0").width) {
      const where = `${block.tagName.toLowerCase()}.${block.className}`;
      narrow.push(`${Math.round(room)} px in ${where}: ${text.slice(0, 60)}`);
    }
  }
  const blocks = main.querySelectorAll("li, p, dt, dd, tr, h1, h2, h3, header, section, form, label, details").length;
  const warranted = innerHeight + 32 * blocks + area / (0.45 * main.clientWidth);
  return { narrow, height: document.documentElement.scrollHeight, warranted: Math.round(warranted) };
}
"""


@pytest.fixture
def pages(office: Office, cast: Cast) -> dict[str, list[str]]:
    """All pages with the person who opens them, and the pages of requests in every state."""
    office.effects.tools["create_account"] = BIG
    waiting, done = office.start(key="a-key"), office.start()
    office.approve(done)
    undoable = office.start(args={"username": "another", "security_level": 2, "note": "n " * 200})
    with override_settings(ABEYANCE_UNDO_SECONDS=600):
        office.approve(undoable)
    denied, doubt = office.start(), office.in_doubt()
    office.deny(denied, "Not now.")
    parked = office.start()
    Run.objects.filter(id=parked).update(status="quarantined", reason="entry 3 is not its own")
    halt, short = office.held(), office.short(Budget(turns=1))
    published(input_schema=object_of(username={"type": "string"}), tools=[])
    named = {
        "run": done,
        "approval": office.request(waiting).id,
        "doubtrun": doubt,
        "parked": parked,
        "failed": office.failed(),
        "content": BlobReference.objects.filter(run=done).values_list("content_id", flat=True)[0],
    }
    requests = [
        halt,
        short,
        office.in_doubt_request(doubt),
        *map(office.request, (done, undoable, denied)),
    ]
    ours = [
        *(f"/a/{request.id}/" for request in requests),
        *(f"/runs/{run}/" for run in (waiting, doubt, parked, halt.run_id, short.run_id)),
        f"/runs/{done}/?tab=transcript",
        "/inbox/?view=others",
        "/inbox/?view=decided",
        "/nowhere/",
    ]
    every = [path.format(**named) for path in _written()]
    return {"bea": ours, "admin": [*every, f"/runs/{done}/at/6/", f"/runs/{done}/?tab=state"]}


def _written() -> list[str]:
    """The pages of the authorisation matrix, so that a new page is measured too."""
    lines = [line.split() for line in MATRIX.read_text(encoding="utf-8").splitlines()]
    paths = [line[1] for line in lines if line and line[0] == "GET"]
    return [path for path in paths if not path.startswith(NO_PAGES)]


def test_columns_are_wide_enough_and_pages_low_enough(
    desk: Desk, pages: dict[str, list[str]]
) -> None:
    wrong = {}
    assert [found["narrow"] for found in _measured(desk, "/login/").values()] == [[], [], []]
    for name, paths in pages.items():
        desk.log_in(name)
        for path in paths:
            for width, found in _measured(desk, path).items():
                if found["narrow"] or found["height"] > found["warranted"]:
                    wrong[path, width] = found
    assert wrong == {}


def _measured(desk: Desk, path: str) -> dict[int, dict[str, Any]]:
    """A page by the width of its window."""
    answer = desk.page.goto(desk.url + path)
    assert answer is not None
    assert answer.status == (404 if path == "/nowhere/" else 200), path
    found = {}
    for width in WIDTHS:
        desk.page.set_viewport_size({"width": width, "height": 900})
        found[width] = desk.page.evaluate(MEASURED, CHARACTERS)
    return found
