"""The small agent of the README, cut out of it and started as the README says, decided in a real browser."""

import json
import shlex
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.docs.pages import README, blocks
from tests.support.people import Office
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

LINES = 25


def _command(part: str) -> list[str]:
    """The words of the README's command that has this part."""
    texts = [block.text.replace("\\\n", " ") for block in blocks(README, "")]
    (command,) = [line for text in texts for line in text.splitlines() if part in line]
    return shlex.split(command)


def test_the_agent_is_started_approved_and_done_as_the_readme_says(
    chromium: Browser, sandbox: Path
) -> None:
    (block,) = blocks(README, "python")
    assert len(block.text.splitlines()) <= LINES
    folder = sandbox / "agents of my own"  # empty, and outside the checkout
    folder.mkdir(mode=0o755)
    (folder / "refunds.py").write_text(block.text, encoding="utf-8")
    given = dict(word.split("=", 1) for word in _command("AGENTS_DIR=") if "=" in word)
    chosen = given["ABEYANCE_AGENTS"]
    with Stack(sandbox / "readme", AGENTS_DIR=str(folder), ABEYANCE_AGENTS=chosen) as stack:
        office = Office(stack)
        found = office.execute("import importlib.util as u; print(u.find_spec('refunds'))")
        assert found.strip() == "None"  # the web cannot import it

        words = _command("curl ")
        assert words[1].endswith("/api/v1/runs")
        body = json.loads(words[words.index("-d") + 1])
        status, run = stack.ask("ada", "POST", "/api/v1/runs", body)
        assert status == 201, run
        office.wait(run["id"], "suspended")

        page = chromium.new_page(base_url=stack.url)
        page.goto("/login/")
        page.get_by_label("Username").fill("ada")
        page.get_by_label("Password").fill(stack.credentials["users"]["ada"]["password"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(lambda url: "/login/" not in url)
        page.goto("/agents/")
        page.get_by_role("link", name="refunds").first.click()
        page.get_by_role("link", name="Start").first.click()
        page.get_by_label("number").fill("A-1")
        page.get_by_role("button", name="Start the run").click()
        page.wait_for_url("**/runs/*/")
        own = page.url.rstrip("/").rpartition("/")[2]
        office.wait(own, "suspended")
        assert office.approval(own)["sentence"] == "Pay 40 euros back for order A-1"
        office.decide("bea", office.approval(own), "approve")
        office.wait(own, "completed")
        page.reload()
        expect(page.get_by_text("Order A-1: 40 euros are on their way").first).to_be_visible()
        page.context.close()
