"""The whole application with the small agent of the README, started as it says and decided in a real browser."""

import email
import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from config.local import demo
from config.local.app_environment import INVOICES
from config.local.servers import books
from tests.browser.conftest import logged_in
from tests.docs.pages import README, blocks
from tests.support.people import Office, until
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

LINES = 25


def _command(part: str) -> list[str]:
    """The words of the README's command that has this part."""
    texts = [block.text.replace("\\\n", " ") for block in blocks(README, "")]
    (command,) = [line for text in texts for line in text.splitlines() if part in line]
    return shlex.split(command)


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    """The application with the block of the README in an empty folder outside the checkout."""
    (block,) = blocks(README, "python")
    assert len(block.text.splitlines()) <= LINES
    folder = sandbox / "agents of my own"
    folder.mkdir(mode=0o755)
    (folder / "refunds.py").write_text(block.text, encoding="utf-8")
    given = dict(word.split("=", 1) for word in _command("AGENTS_DIR=") if "=" in word)
    # The demonstration's invoices come while a test looks at something else.
    chosen = given["SIGNOFF_AGENTS"].replace(f"{INVOICES},", "")
    with Stack(sandbox / "readme", AGENTS_DIR=str(folder), SIGNOFF_AGENTS=chosen) as stack:
        yield Office(stack)


@pytest.fixture
def window(chromium: Browser, office: Office) -> Iterator[Callable[[str], Page]]:
    """Open a browser window for this person, logged in."""
    opened = []

    def log_in(name: str) -> Page:
        page = logged_in(chromium, office.stack, name)
        opened.append(page.context)
        return page

    yield log_in
    for context in opened:
        context.close()


def test_the_readmes_agent_runs_to_its_end(window: Callable[[str], Page], office: Office) -> None:
    found = office.execute("import importlib.util as u; print(u.find_spec('refunds'))")
    assert found.strip() == "None"  # the web cannot import it
    words = _command("curl ")
    assert words[1].endswith("/api/v1/runs")
    body = json.loads(words[words.index("-d") + 1])
    status, run = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    assert status == 201, run
    office.wait(run["id"], "suspended")

    ada = window("ada")
    ada.goto("/agents/refunds/start/")
    ada.get_by_label("number").fill("A-1")
    ada.get_by_role("button", name="Start the run").click()
    ada.wait_for_url("**/runs/*/")
    own = ada.url.rstrip("/").rpartition("/")[2]
    office.wait(own, "suspended")
    assert office.approval(own)["sentence"] == "Pay 40 euros back for order A-1"
    office.decide("bea", office.approval(own), "approve")
    office.wait(own, "completed")
    ada.reload()
    expect(ada.get_by_text("Order A-1: 40 euros are on their way").first).to_be_visible()


def test_bea_approves_a_nested_run_and_an_open_page_and_inbox_follow(
    window: Callable[[str], Page], office: Office
) -> None:
    bea, ada = window("bea"), window("ada")
    expect(bea.get_by_text("Live", exact=True)).to_be_visible()
    run = office.start("hr_onboarding", "seen", level=2)
    approval = office.wait(run, "suspended")["gates"][0]["approval"]
    expect(bea.get_by_role("button", name="new, press . to show")).to_be_visible()
    bea.keyboard.press(".")
    bea.get_by_role("link", name="Give seen security level 2").click()
    ada.goto(f"/a/{approval}/")
    ada.evaluate("window.stayed = true")
    expect(ada.get_by_text("Live", exact=True)).to_be_visible()
    bea.get_by_text("Input and steps").click()
    for text in ("HR onboarding", "Accounts", "Send the welcome mail"):
        expect(bea.get_by_text(text).first).to_be_visible()
    assert (office.roles("seen"), office.mails("seen")) == ([], 0)
    bea.get_by_role("button", name="Approve…").click()
    bea.get_by_label("Type seen to approve").fill("seen")
    bea.keyboard.press("Enter")
    expect(bea.locator(".toast")).to_be_visible()
    bea.goto(f"/a/{approval}/")
    for page in (bea, ada):
        expect(page.get_by_role("heading", name="Approved by bea")).to_be_visible()
    assert ada.evaluate("window.stayed") is True
    office.wait(run, "completed")
    assert (office.roles("seen"), office.mails("seen")) == (["security-level-2"], 1)
    bea.get_by_role("link", name="See the run").click()
    expect(bea.get_by_text("The welcome mail went to seen@example.org").first).to_be_visible()


def test_open_tabs_do_not_prevent_a_stop(window: Callable[[str], Page], office: Office) -> None:
    """Last in this file, because it stops everything."""
    bea = window("bea")
    expect(bea.get_by_text("Live", exact=True)).to_be_visible()
    office.stack.stop()  # in time, or it raises


# Invoices


CSV = """\
supplier,number,order,date,amount,currency,iban
S-100,NP-4712,PO-1003,2026-11-27,312.40,EUR,DE02120300000000202051
"""
MALFORMED = {"supplier": "S-100", "number": "NP-4713", "amount": 312.4}
REQUEST = "SELECT 1 FROM approvals_approval WHERE position(%s IN sentence) > 0"
NORTHERN, ACCOUNTS = "billing@northern-paper.example", "accounts@example.org"


def test_an_invoice_in_the_folder_is_approved_booked_once_and_reported(
    sandbox: Path, chromium: Browser
) -> None:
    with Stack(sandbox / "invoices", SIGNOFF_AGENTS="") as stack:
        bea, ada = logged_in(chromium, stack, "bea"), logged_in(chromium, stack, "ada")
        folder = stack.home / "invoices"
        (folder / "NP-4712.csv").write_text(CSV)
        (folder / "NP-4713.json").write_text(json.dumps(MALFORMED))
        sentence = "Book invoice NP-4712 of S-100: 312.40 EUR"
        until(lambda: stack.rows(REQUEST, sentence) or None, "a request")
        _approve(bea, sentence)
        until(lambda: NORTHERN in _mails(stack) or None, "the mail to the supplier")
        assert _booked(stack) == [("NP-4712", "312.40")]

        ada.goto("/triggers/")
        ada.get_by_role("link", name=demo.TRIGGER).first.click()
        expect(ada.get_by_text("input.invoice.order: is missing")).to_be_visible()

        runs = until(lambda: found if len(found := _runs(stack)) == 6 else None, "six runs")
        stack.restart()
        _, schedules = stack.ask("ada", "GET", "/api/v1/schedules")
        (nightly,) = schedules["items"]
        assert stack.ask("ada", "POST", f"/api/v1/schedules/{nightly['id']}/run-now", {})[0] == 200
        until(lambda: ACCOUNTS in _mails(stack) or None, "the report")
        report = str(_mails(stack)[ACCOUNTS].get_payload())
        for line in (
            "booked: NP-4712 of Northern Paper, 312.40 EUR",
            "waiting: NP-4711 of Northern Paper, 1190.00 EUR",
            "waiting: 2026-88 of Delta Tools, 4760.50 EUR",
        ):
            assert line in report
        assert len(stack.ask("ada", "GET", "/api/v1/triggers")[1]["items"]) == 1
        assert Counter(run["agent"] for run in _runs(stack)) == {
            **Counter(run["agent"] for run in runs),
            "invoice_report": 1,
        }


def _approve(page: Page, sentence: str) -> None:
    page.goto("/")
    page.get_by_role("link", name=sentence).click()
    page.get_by_role("button", name="Approve").click()
    expect(page.locator(".toast")).to_be_visible()


def _runs(stack: Stack) -> list[dict[str, Any]]:
    _, found = stack.ask("ada", "GET", "/api/v1/runs")
    return list(found["items"])


def _booked(stack: Stack) -> list[tuple[Any, ...]]:
    url = stack.superuser_url.rpartition("/")[0]
    with psycopg.connect(f"{url}/{books.DATABASE}") as connection:
        return connection.execute(
            "SELECT number, amount::text FROM invoice WHERE state = 'booked'"
        ).fetchall()


def _mails(stack: Stack) -> dict[str, Any]:
    """The newest mail to each address."""
    found = sorted((stack.home / "mail").glob("*.eml"))
    letters = [email.message_from_bytes(path.read_bytes()) for path in found]
    return {letter["To"]: letter for letter in letters}
