"""Reads and writes the books of an accounts department, in a Postgres database of their own.

`BOOKS_READER_URL` and `BOOKS_WRITER_URL` of the workers name it, with a role that only reads and one that writes. An
invoice has one row, by supplier and number, so a second one with the same number is refused by Postgres itself.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row

from agents.sdk import FailureCause, NotDone, ToolContext, ToolError

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


def record(context: ToolContext, invoice: Mapping[str, str]) -> None:
    """Keep an invoice as one that waits. Raise ToolError if the books have it from another run."""
    values = {**invoice, "run": context.run}
    with _connected(context, WRITER) as connection:
        connection.execute(_RECORD, values)
        row = connection.execute(_INVOICE, values).fetchone()
        if row is None or row["run"] != context.run:
            raise ToolError(_is_there(invoice, row))


def book(context: ToolContext, invoice: Mapping[str, str]) -> None:
    """Book an invoice of this run once, and keep its IBAN as the supplier's. Raise ToolError if it cannot be booked."""
    values = {**invoice, "run": context.run, "key": context.key}
    with _connected(context, WRITER) as connection:
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
    with _connected(context, WRITER) as connection:
        if connection.execute(_REJECT, values).rowcount:
            return
        row = connection.execute(_INVOICE, values).fetchone()
    if row is None or (row["run"], row["state"]) != (context.run, "rejected"):
        raise ToolError(_is_there(values, row))


def booked(context: ToolContext, supplier: str, number: str) -> Row:
    """Return an invoice that this run booked, with the supplier's name and address. Raise ToolError."""
    with _connected(context, READER) as connection:
        values = {"supplier": supplier, "number": number}
        row = connection.execute(_INVOICE, values).fetchone()
    if row is None or (row["run"], row["state"]) != (context.run, "booked"):
        raise ToolError(f"this run did not book invoice {number} of {supplier}")
    return row


def terms(context: ToolContext, supplier: str, order: str) -> Row | None:
    """Return a supplier with one of its orders, or None. The order's columns are None if there is no such order."""
    with _connected(context, READER) as connection:
        return connection.execute(_TERMS, {"supplier": supplier, "order": order}).fetchone()


def _is_there(invoice: Mapping[str, Any], row: Row | None) -> str:
    label = f"invoice {invoice['number']} of {invoice['supplier']}"
    if row is None:
        return f"{label} is not in the books"
    return f"{label} is in the books already: {row['state']}, by run {row['run']}"


@contextmanager
def _connected(context: ToolContext, name: str) -> Iterator[psycopg.Connection[Row]]:
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
