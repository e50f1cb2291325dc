"""The small agent of the README, cut out of it and started as the README says, decided in a real browser."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.docs.pages import README, blocks
from tests.e2e.office import Office
from tests.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

LINES = 25


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    """The application with the block of the README in an empty folder outside the checkout."""
    (block,) = blocks(README, "python")
    folder = sandbox / "agents of my own"
    folder.mkdir(mode=0o755)
    (folder / "refunds.py").write_text(block.text, encoding="utf-8")
    with Stack(sandbox / "readme", AGENTS_DIR=str(folder), ABEYANCE_AGENTS=_chosen()) as stack:
        yield Office(stack)


def _chosen() -> str:
    """ABEYANCE_AGENTS as the README's command has it."""
    (command,) = [
        line
        for block in blocks(README, "")
        for line in block.text.splitlines()
        if "AGENTS_DIR=" in line
    ]
    assignments = dict(word.split("=", 1) for word in shlex.split(command) if "=" in word)
    return assignments["ABEYANCE_AGENTS"]


def test_the_agent_is_as_small_as_it_says() -> None:
    (block,) = blocks(README, "python")
    assert len(block.text.splitlines()) <= LINES


def test_the_web_cannot_import_the_agent(office: Office) -> None:
    found = office.execute("import importlib.util as u; print(u.find_spec('refunds'))")
    assert found.strip() == "None"


def test_the_agent_runs_to_an_approval_in_the_browser_and_ends_as_approved(
    chromium: Browser, office: Office
) -> None:
    body = {"agent": "refunds", "input": {"number": "A-1"}}
    status, run = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    assert status == 201, run
    office.wait(run["id"], "suspended")

    page = chromium.new_page(base_url=office.stack.url)
    page.goto("/")
    page.get_by_label("Username").fill("bea")
    page.get_by_label("Password").fill(office.stack.credentials["users"]["bea"]["password"])
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("link", name="Pay 40 euros back for order A-1").first.click()
    expect(page.get_by_role("heading", name="Pay 40 euros back for order A-1")).to_be_visible()
    page.get_by_role("button", name=re.compile("^Approve")).first.click()
    expect(page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    office.wait(run["id"], "completed")
    page.goto(f"/runs/{run['id']}/")
    expect(page.get_by_text("Order A-1: 40 euros are on their way").first).to_be_visible()
    page.close()
