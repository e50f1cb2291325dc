"""The invoice agents in memory, against real books in Postgres and a real mail server."""

import re
import threading
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from agents.errors import ToolError
from agents.flows.invoices import invoice_report, invoices, tools
from agents.flows.invoices.invoice import InvoiceFile
from agents.sdk import inputs
from agents.testing import call, drive, say
from runtime.errors import InvalidInput
from tests.agents.conftest import context
from tests.support.books import KNOWN, OTHER, Ledger
from tests.support.mail import Sink

INVOICE = {
    "supplier": "S-100",
    "number": "R-17",
    "order": "PO-1001",
    "date": "2026-11-27",
    "amount": "1190.00",
    "currency": "EUR",
    "iban": KNOWN,
}
CSV = ",".join(INVOICE) + "\n" + ",".join(INVOICE.values()) + "\n"
TEXT = "Dear all,\n" + "\n".join(f"{name.title()}: {value}" for name, value in INVOICE.items())
BOOKED = "Invoice R-17 of S-100 was booked: 1190.00 EUR. The supplier was told."


def _file(name: str = "17.json", **changes: str) -> dict[str, Any]:
    return {"file": name, "invoice": {**INVOICE, **changes}}


@pytest.mark.parametrize(
    "given",
    [_file(), {"file": "17.csv", "invoice": CSV}, {"file": "17.txt", "invoice": TEXT}],
    ids=["json", "csv", "text"],
)
def test_an_approved_invoice_is_booked_once_although_the_worker_dies(
    ledger: Ledger, sink: Sink, given: dict[str, Any]
) -> None:
    run = drive(invoices, given, crash_after=["record_invoice", "book_invoice"])
    assert ledger.invoices() == [("R-17", "1190.00", "waiting")]
    sentence = f"Book invoice R-17 of S-100: 1190.00 EUR to {KNOWN}"
    assert (run.gate.sentence, run.gate.risk) == (sentence, "medium")
    run.approve()
    assert [made.attempt for made in run.calls if made.tool == "book_invoice"] == [1, 2]
    assert (run.output, ledger.invoices()) == (BOOKED, [("R-17", "1190.00", "booked")])
    (mail,) = sink.mails
    assert (mail["To"], mail["Subject"]) == ("billing@northern-paper.example", "Invoice R-17")
    assert "over 1190.00 EUR" in str(mail.get_payload())


def test_another_iban_is_a_high_risk_and_shown(ledger: Ledger, sink: Sink) -> None:
    run = drive(invoices, _file(iban=OTHER, amount="1190.01"))
    assert run.gate.risk == "high"
    shown = (run.gate.preview or {})["shown"]
    assert shown["changes"] == [
        {"what": "open of order PO-1001", "before": "1190.00", "after": "-0.01"},
        {"what": "IBAN of S-100", "before": KNOWN, "after": OTHER},
    ]
    assert [text[:30] for text in shown["warnings"]] == [
        "The invoice names another IBAN",
        "The invoice is 0.01 EUR above ",
    ]
    run.approve()
    assert ledger.rows("SELECT iban FROM supplier WHERE number = 'S-100'") == [(OTHER,)]


def test_a_model_cannot_hide_that_the_iban_is_another(ledger: Ledger) -> None:
    booking = call("book_invoice", **{**INVOICE, "iban": OTHER}, known_iban=OTHER)
    run = drive(invoices, _file(), model=[booking, say("Done.")])
    assert (run.gates, run.output, ledger.invoices()) == ((), "Done.", [])
    assert "known_iban must be the IBAN of S-100 in the books" in str(run)


def test_a_large_amount_is_a_high_risk(ledger: Ledger) -> None:
    assert drive(invoices, _file(amount="10000.00")).gate.risk == "high"


def test_a_denied_invoice_is_rejected_and_may_come_again(ledger: Ledger, sink: Sink) -> None:
    run = drive(invoices, _file()).deny("it is a copy")
    assert run.output == "The invoice in 17.json was not booked: it is a copy."
    assert ledger.rows("SELECT state, reason FROM invoice") == [("rejected", "it is a copy")]
    assert sink.mails == []
    assert drive(invoices, _file("again.json")).approve().output == BOOKED


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, r"invoice R-17 of S-100 is in the books already: waiting, by run .*"),
        ({"supplier": "S-9"}, r"the books have no supplier S-9\."),
        ({"order": "PO-1002"}, r"S-100 has no order PO-1002\."),
        ({"number": "R-18", "currency": "CHF"}, r"order PO-1001 is in EUR, not in CHF\."),
        ({"number": "R-18", "amount": "0.00"}, r"the books refused it: .*"),
        ({"number": "R-18", "date": "2026-02-30"}, r"the books refused it: .*"),
    ],
)
def test_an_invoice_that_the_books_refuse_opens_no_gate(
    ledger: Ledger, changes: dict[str, str], why: str
) -> None:
    first = drive(invoices, _file())
    run = drive(invoices, _file("copy.json", **changes))
    assert (len(first.gates), run.gates) == (1, ())
    assert re.fullmatch(rf"The invoice in copy\.json was not booked: {why}", run.output), run.output


def test_of_two_runs_with_one_invoice_one_records_it(ledger: Ledger) -> None:
    runs = [context(), context()]
    for one, run in zip(runs, (uuid4(), uuid4()), strict=True):
        object.__setattr__(one, "run", run)
    tried = [lambda one=one: tools.record(one, INVOICE) for one in runs]
    assert len(_refused(*tried)) == 1
    assert len(ledger.invoices()) == 1


def test_one_call_books_twice_and_another_never(ledger: Ledger) -> None:
    tools.record(context(), INVOICE)
    given = {**INVOICE, "known_iban": KNOWN}
    assert _refused(*[lambda: tools.book(context("a"), given)] * 2) == []
    (why,) = _refused(lambda: tools.book(context("b"), given))
    assert why.startswith("invoice R-17 of S-100 is in the books already: booked")
    assert ledger.rows("SELECT key FROM invoice") == [("a",)]


def test_an_iban_that_changed_after_the_approval_stops_the_booking(ledger: Ledger) -> None:
    tools.record(context(), INVOICE)
    (why,) = _refused(lambda: tools.book(context(), {**INVOICE, "known_iban": OTHER}))
    assert why == "the books have another IBAN of S-100 by now"
    assert ledger.invoices() == [("R-17", "1190.00", "waiting")]


def _refused(*calls: Callable[[], None]) -> list[str]:
    """Make the calls at the same time, and return why books refused them."""
    said: list[str] = []
    together = threading.Barrier(len(calls))

    def run(one: Callable[[], None]) -> None:
        together.wait()
        try:
            one()
        except ToolError as exc:
            said.append(str(exc))

    threads = [threading.Thread(target=run, args=(one,)) for one in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return said


@pytest.mark.parametrize(
    ("invoice", "field"),
    [
        ({**INVOICE, "amount": 1190.0}, "input.invoice.amount: must be of type string"),
        ({**INVOICE, "amount": "1,190"}, "input.invoice.amount: must have the form of 1190.00"),
        ({**INVOICE, "iban": "DE02"}, "input.invoice.iban: must have the form of DE0212"),
        ({**INVOICE, "date": "27.11.2026"}, "input.invoice.date: must have the form of 2026-11-27"),
        ({"number": "R-17"}, "input.invoice.supplier: is missing"),
        ({**INVOICE, "paid": "yes"}, "input.invoice.paid: is not expected"),
        ([INVOICE], "input.invoice: must be object or string"),
        ("", "input.invoice: must have at least 1 characters"),
        (None, "input.invoice: must be object or string"),
    ],
)
def test_a_trigger_names_the_field_of_a_malformed_file(invoice: Any, field: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        inputs.check(invoices.input_schema, {"file": "17.json", "invoice": invoice})
    assert field in refused.value.all_of_it


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            CSV.replace("1190.00", "1190,00"),
            r"invoice\.more: is not expected; invoice\.amount: must have the form of 1190\.00",
        ),
        (CSV.replace("1190.00", "1190"), r"invoice\.amount: must have the form of 1190\.00"),
        (CSV.replace("iban", "account"), r"invoice\.iban: is missing"),
        (CSV + CSV.splitlines()[1], r"the CSV has 2 rows below its names, and must have one"),
        (CSV.replace(KNOWN, "DE03120300000000202051"), r"the check digits of the IBAN are wrong"),
    ],
)
def test_a_run_names_the_field_of_a_malformed_row(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        inputs.read(InvoiceFile, {"file": "17.CSV", "invoice": text})


def test_a_text_without_an_amount_is_not_booked(ledger: Ledger) -> None:
    text = TEXT.replace("Amount", "Sum")
    said = drive(invoices, {"file": "17.txt", "invoice": text}).output
    assert (
        said == "The invoice in 17.txt was not booked: invoice.amount: is missing:"
        " it must be string · at most 12 characters."
    )


def test_the_report_says_what_was_booked_and_what_waits(ledger: Ledger, sink: Sink) -> None:
    drive(invoices, _file()).approve()
    drive(invoices, _file(number="R-18", amount="12.50"))
    drive(invoices, _file(number="R-19")).deny("no")
    ((now,),) = ledger.rows("SELECT to_json(now()) #>> '{}'")
    run = drive(invoice_report, {"until": now, "to": "books@example.org"})
    assert run.output == f"Invoices until {now[:16]}: 1 booked, 1 waiting. The report was mailed."
    mail = sink.mails[-1]
    assert mail["To"] == "books@example.org"
    assert str(mail.get_payload()).splitlines() == [
        "booked: R-17 of Northern Paper, 1190.00 EUR",
        "waiting: R-18 of Northern Paper, 12.50 EUR",
        "booked in all: 1190.00 EUR",
    ]
    drive(invoice_report, {"until": "2020-01-01T00:00:00Z", "to": "books@example.org"})
    assert "booked:" not in str(sink.mails[-1].get_payload())
