"""What agents may do with the books: look up, record, book behind a gate, reject, and tell by mail.

The books are in a Postgres database of their own. `BOOKS_READER_URL` and `BOOKS_WRITER_URL` of the workers name it,
with a role that only reads and one that writes. An invoice has one row, by supplier and number, so a second one with
the same number is refused by Postgres itself.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal
from typing import Annotated, Any

import psycopg
from psycopg.rows import DictRow, dict_row
from pydantic import Field

from agents.flows.invoices.invoice import Amount, Currency, Day, Iban, Invoice, Number
from agents.sdk import FailureCause, NotDone, Preview, PreviewChange, ToolContext, ToolError, tool
from agents.tools.mail import Body, Subject, send_text
from agents.tools.sql import sql_query

READER, WRITER = "BOOKS_READER_URL", "BOOKS_WRITER_URL"

_RECORD = """
    INSERT INTO invoice (supplier, number, purchase_order, date, amount, currency, iban, run)
    VALUES (%(supplier)s, %(number)s, %(order)s, %(date)s, %(amount)s, %(currency)s, %(iban)s, %(run)s)
    ON CONFLICT (supplier, number) DO UPDATE SET
        purchase_order = excluded.purchase_order, date = excluded.date, amount = excluded.amount,
        currency = excluded.currency, iban = excluded.iban, run = excluded.run,
        state = 'waiting', reason = '', changed_at = now()
    WHERE invoice.state = 'rejected'
"""
# A row that another transaction changes is waited for, and then read again.
_BOOK = """
    UPDATE invoice SET state = 'booked', key = %(key)s, purchase_order = %(order)s, date = %(date)s,
        amount = %(amount)s, currency = %(currency)s, iban = %(iban)s, changed_at = now()
    WHERE supplier = %(supplier)s AND number = %(number)s AND run = %(run)s AND state = 'waiting'
"""
_KEEP_IBAN = (
    "UPDATE supplier SET iban = %(iban)s WHERE number = %(supplier)s AND iban = %(known_iban)s"
)
_REJECT = """
    UPDATE invoice SET state = 'rejected', reason = %(reason)s, changed_at = now()
    WHERE supplier = %(supplier)s AND number = %(number)s AND run = %(run)s AND state = 'waiting'
"""
_INVOICE = """
    SELECT invoice.*, supplier.name, supplier.email FROM invoice JOIN supplier ON supplier.number = supplier
    WHERE supplier = %(supplier)s AND invoice.number = %(number)s
"""
_TERMS = """
    SELECT supplier.name, supplier.iban, ordered.amount, ordered.currency, ordered.amount - coalesce((
        SELECT sum(amount) FROM invoice WHERE purchase_order = ordered.number AND state = 'booked'), 0) AS open
    FROM supplier LEFT JOIN purchase_order ordered
        ON ordered.supplier = supplier.number AND ordered.number = %(order)s
    WHERE supplier.number = %(supplier)s
"""

Row = DictRow
LARGE = Decimal(10_000)  # from here on the risk is high
MAX_REASON = 2_000  # characters

BOOKED = """\
Dear {name},

we have booked your invoice {number} of {date} over {amount} {currency}. It will be paid to {iban}.
"""

look_up = sql_query(
    READER,
    name="look_up",
    description="""Read the books: supplier(number, name, email, iban), purchase_order(number, supplier, amount,
currency) and invoice(supplier, number, purchase_order, date, amount, currency, iban, run, state, reason, changed_at),
whose state is waiting, booked or rejected.""",
)

Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]


def record(context: ToolContext, invoice: Mapping[str, str]) -> None:
    """Keep an invoice as one that waits. Raise ToolError if the books have it from another run."""
    values = {**invoice, "run": context.run}
    with _open_transaction(context, WRITER) as connection:
        connection.execute(_RECORD, values)
        row = connection.execute(_INVOICE, values).fetchone()
        if row is None or row["run"] != context.run:
            raise ToolError(_is_there(invoice, row))


def book(context: ToolContext, invoice: Mapping[str, str]) -> None:
    """Book an invoice of this run once, and keep its IBAN as the supplier's. Raise ToolError if it cannot be booked."""
    values = {**invoice, "run": context.run, "key": context.key}
    with _open_transaction(context, WRITER) as connection:
        if connection.execute(_BOOK, values).rowcount:
            if not connection.execute(_KEEP_IBAN, values).rowcount:
                raise ToolError(f"the books have another IBAN of {invoice['supplier']} by now")
            return
        row = connection.execute(_INVOICE, values).fetchone()
    if row is None or row["key"] != context.key:
        raise ToolError(_is_there(invoice, row))


def reject(context: ToolContext, supplier: str, number: str, reason: str) -> None:
    """Keep an invoice of this run as rejected. Raise ToolError if it does not wait."""
    values = {"supplier": supplier, "number": number, "reason": reason, "run": context.run}
    with _open_transaction(context, WRITER) as connection:
        if connection.execute(_REJECT, values).rowcount:
            return
        row = connection.execute(_INVOICE, values).fetchone()
    if row is None or (row["run"], row["state"]) != (context.run, "rejected"):
        raise ToolError(_is_there(values, row))


def read_booked_invoice(context: ToolContext, supplier: str, number: str) -> Row:
    """Return an invoice that this run booked, with the supplier's name and address. Raise ToolError."""
    with _open_transaction(context, READER) as connection:
        values = {"supplier": supplier, "number": number}
        row = connection.execute(_INVOICE, values).fetchone()
    if row is None or (row["run"], row["state"]) != (context.run, "booked"):
        raise ToolError(f"this run did not book invoice {number} of {supplier}")
    return row


def read_terms(context: ToolContext, supplier: str, order: str) -> Row | None:
    """Return a supplier with one of its orders, or None. The order's columns are None if there is no such order."""
    with _open_transaction(context, READER) as connection:
        return connection.execute(_TERMS, {"supplier": supplier, "order": order}).fetchone()


@tool(effect="idempotent", sentence="Record invoice {number} of {supplier} as one that waits")
def record_invoice(
    context: ToolContext,
    supplier: Number,
    number: Number,
    order: Number,
    date: Day,
    amount: Amount,
    currency: Currency,
    iban: Iban,
) -> str:
    """Keep an invoice in the books as one that waits for its booking. Refused if the supplier's number is taken."""
    invoice = _build_invoice(supplier, number, order, date, amount, currency, iban)
    record(context, invoice)
    return "recorded"


def find_booking_refusal(
    context: ToolContext, supplier: str, order: str, currency: str, known_iban: str
) -> str | None:
    """Say why an invoice cannot be booked. `known_iban` must be that of the books: the risk depends on it."""
    terms = read_terms(context, supplier, order)
    if terms is None:
        return f"the books have no supplier {supplier}"
    if terms["amount"] is None:
        return f"{supplier} has no order {order}"
    if terms["currency"] != currency:
        return f"order {order} is in {terms['currency']}, not in {currency}"
    if terms["iban"] != known_iban:
        return f"known_iban must be the IBAN of {supplier} in the books"
    return None


def preview_booking(
    context: ToolContext, supplier: str, order: str, amount: str, currency: str, iban: str
) -> Preview:
    """Compare the open amount of the order, and the supplier's IBAN, before and after the booking."""
    terms = read_terms(context, supplier, order) or {}
    open_amount, known_iban = terms.get("open"), terms.get("iban")
    left_open = None if open_amount is None else open_amount - Decimal(amount)
    before, after = _format_amount(open_amount), _format_amount(left_open)
    changes = [PreviewChange(what=f"open of order {order}", before=before, after=after)]
    warnings = []
    if known_iban != iban:
        changes.append(PreviewChange(what=f"IBAN of {supplier}", before=known_iban, after=iban))
        warnings.append(f"The invoice names another IBAN than the books have of {supplier}")
    if left_open is not None and left_open < 0:
        warnings.append(
            f"The invoice is {-left_open} {currency} above the open amount of the order"
        )
    name = terms.get("name", supplier)
    summary = f"Books {amount} {currency} from {name}, to be paid to {iban}"
    return Preview(summary=summary, changes=changes, targets=[name], warnings=warnings)


def judge_risk(amount: str, iban: str, known_iban: str) -> str:
    """Return high for another IBAN than the known one, as forged invoices have, and for a large amount."""
    return "high" if iban != known_iban or Decimal(amount) >= LARGE else "medium"


@tool(
    effect="idempotent",
    approval=True,
    risk=judge_risk,
    sentence="Book invoice {number} of {supplier}: {amount} {currency} to {iban}",
    preview=preview_booking,
    precondition=find_booking_refusal,
)
def book_invoice(
    context: ToolContext,
    supplier: Number,
    number: Number,
    order: Number,
    date: Day,
    amount: Amount,
    currency: Currency,
    iban: Iban,
    known_iban: Iban,
) -> str:
    """Book a recorded invoice, to be paid to `iban`, which becomes the supplier's known one.

    `known_iban` is the supplier's IBAN in the books.
    """
    invoice = _build_invoice(supplier, number, order, date, amount, currency, iban)
    book(context, invoice | {"known_iban": known_iban})
    return "booked"


@tool(effect="idempotent", sentence="Keep invoice {number} of {supplier} as rejected: {reason}")
def reject_invoice(context: ToolContext, supplier: Number, number: Number, reason: Reason) -> str:
    """Keep a recorded invoice as rejected. The supplier may then send another one with its number."""
    reject(context, supplier, number, reason)
    return "rejected"


@tool(sentence="Tell {supplier} by mail that invoice {number} was booked")
def tell_supplier(context: ToolContext, supplier: Number, number: Number) -> dict[str, str]:
    """Tell a supplier, at its address in the books, that this run booked an invoice. Returns the Message-ID."""
    row = read_booked_invoice(context, supplier, number)
    return send_text(context, row["email"], f"Invoice {number}", BOOKED.format(**row))


@tool(sentence="Mail the report: {subject}")
def mail_report(context: ToolContext, subject: Subject, body: Body) -> dict[str, str]:
    """Mail a report to the address that the run was given. Returns the Message-ID."""
    return send_text(context, context.input["to"], subject, body)


def _is_there(invoice: Mapping[str, Any], row: Row | None) -> str:
    label = f"invoice {invoice['number']} of {invoice['supplier']}"
    if row is None:
        return f"{label} is not in the books"
    return f"{label} is in the books already: {row['state']}, by run {row['run']}"


@contextmanager
def _open_transaction(context: ToolContext, name: str) -> Iterator[psycopg.Connection[Row]]:
    """Open one transaction. Raise NotDone without a connection, and ToolError for values that the books refuse."""
    url = os.environ.get(name)
    if not url:
        raise NotDone(f"the workers have no {name}", cause=FailureCause.SETUP)
    seconds = max(2, int(context.remaining()))
    try:
        connection = psycopg.connect(url, connect_timeout=seconds, row_factory=dict_row)
    except psycopg.Error as exc:
        raise NotDone("the books cannot be reached", cause=FailureCause.NETWORK) from exc
    try:
        with connection:
            yield connection
    except (psycopg.IntegrityError, psycopg.DataError) as exc:
        detail = exc.diag.message_detail or exc.diag.message_primary or str(exc)
        raise ToolError(f"the books refused it: {detail}") from exc


def _build_invoice(*values: str) -> dict[str, str]:
    """Return the fields of an invoice, whose values are in their order."""
    return dict(zip(Invoice.model_fields, values, strict=True))


def _format_amount(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
