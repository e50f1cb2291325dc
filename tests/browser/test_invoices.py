"""The invoices of the demonstration, from a file in the folder to the books and the mail, also over a new start."""

import email
import json
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest
from playwright.sync_api import Browser, Page, expect

from config.local import demo
from config.local.servers import books
from tests.browser.conftest import logged_in
from tests.support.people import until
from tests.support.stack import Stack

pytestmark = [pytest.mark.browser, pytest.mark.e2e]

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
