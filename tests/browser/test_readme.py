"""The small agent of the README, cut out of it and started as the README says, decided in a real browser."""

import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.docs.pages import README, blocks
from tests.support.people import Office
from tests.support.stack import Stack

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
    (command,) = [text for text in _commands() if "AGENTS_DIR=" in text]
    assignments = dict(word.split("=", 1) for word in shlex.split(command) if "=" in word)
    return assignments["ABEYANCE_AGENTS"]


def _commands() -> list[str]:
    """The README's commands, a continued one as one line."""
    texts = [block.text.replace("\\\n", " ") for block in blocks(README, "")]
    return [line for text in texts for line in text.splitlines()]


def test_the_agent_is_as_small_as_it_says() -> None:
    (block,) = blocks(README, "python")
    assert len(block.text.splitlines()) <= LINES


def test_the_web_cannot_import_the_agent(office: Office) -> None:
    found = office.execute("import importlib.util as u; print(u.find_spec('refunds'))")
    assert found.strip() == "None"


@pytest.fixture
def windows(chromium: Browser, office: Office) -> Iterator[Callable[[str], Page]]:
    """A browser window of its own for each person who is named, logged in."""
    opened = []

    def window(person: str) -> Page:
        context = chromium.new_context(base_url=office.stack.url)
        opened.append(context)
        page = context.new_page()
        page.goto("/login/")
        page.get_by_label("Username").fill(person)
        page.get_by_label("Password").fill(office.stack.credentials["users"][person]["password"])
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(lambda url: "/login/" not in url)
        return page

    yield window
    for context in opened:
        context.close()


def test_the_agent_is_started_approved_and_done_in_the_browser(
    windows: Callable[[str], Page], office: Office
) -> None:
    ada, bea = windows("ada"), windows("bea")
    ada.goto("/agents/")
    ada.get_by_role("link", name="refunds").first.click()
    ada.get_by_role("link", name="Start").first.click()
    ada.get_by_label("number").fill("A-1")
    ada.get_by_role("button", name="Start the run").click()
    ada.wait_for_url("**/runs/*/")
    run = ada.url.rstrip("/").rpartition("/")[2]
    office.wait(run, "suspended")

    bea.goto("/inbox/")
    bea.get_by_role("link", name="Pay 40 euros back for order A-1").first.click()
    expect(bea.get_by_role("heading", name="Pay 40 euros back for order A-1")).to_be_visible()
    bea.get_by_role("button", name=re.compile("^Approve")).first.click()
    expect(bea.get_by_role("heading", name="Approved by bea")).to_be_visible()

    office.wait(run, "completed")
    ada.reload()
    expect(ada.get_by_text("Order A-1: 40 euros are on their way").first).to_be_visible()


def test_the_api_starts_it_as_the_readme_says(office: Office) -> None:
    (words,) = [shlex.split(text) for text in _commands() if text.startswith("curl ")]
    assert words[1].endswith("/api/v1/runs")
    body = json.loads(words[words.index("-d") + 1])
    status, run = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    assert status == 201, run
    office.wait(run["id"], "suspended")
