"""What agents may do with the books: look up, record, book behind a gate, reject, and tell by mail."""

from decimal import Decimal
from typing import Annotated

from pydantic import Field

from agents.flows.invoices import books
from agents.flows.invoices.invoice import Amount, Currency, Day, Iban, Invoice, Number
from agents.sdk import Preview, PreviewChange, ToolContext, tool
from agents.tools.mail import Body, Subject, send_text
from agents.tools.sql import sql_query

LARGE = Decimal(10_000)  # from here on the risk is high
MAX_REASON = 2_000  # characters

BOOKED = """\
Dear {name},

we have booked your invoice {number} of {date} over {amount} {currency}. It will be paid to {iban}.
"""

look_up = sql_query(
    books.READER,
    name="look_up",
    description="""Read the books: supplier(number, name, email, iban), purchase_order(number, supplier, amount,
currency) and invoice(supplier, number, purchase_order, date, amount, currency, iban, run, state, reason, changed_at),
whose state is waiting, booked or rejected.""",
)

Reason = Annotated[str, Field(min_length=1, max_length=MAX_REASON)]


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
    invoice = _invoice(supplier, number, order, date, amount, currency, iban)
    books.record(context, invoice)
    return "recorded"


def why_not(
    context: ToolContext, supplier: str, order: str, currency: str, known_iban: str
) -> str | None:
    """Say why an invoice cannot be booked. `known_iban` must be that of the books: the risk depends on it."""
    terms = books.terms(context, supplier, order)
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
    terms = books.terms(context, supplier, order) or {}
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


def risk_of(amount: str, iban: str, known_iban: str) -> str:
    """Return high for another IBAN than the known one, as forged invoices have, and for a large amount."""
    return "high" if iban != known_iban or Decimal(amount) >= LARGE else "medium"


@tool(
    effect="idempotent",
    approval=True,
    risk=risk_of,
    sentence="Book invoice {number} of {supplier}: {amount} {currency} to {iban}",
    preview=preview_booking,
    precondition=why_not,
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
    invoice = _invoice(supplier, number, order, date, amount, currency, iban)
    books.book(context, invoice | {"known_iban": known_iban})
    return "booked"


@tool(effect="idempotent", sentence="Keep invoice {number} of {supplier} as rejected: {reason}")
def reject_invoice(context: ToolContext, supplier: Number, number: Number, reason: Reason) -> str:
    """Keep a recorded invoice as rejected. The supplier may then send another one with its number."""
    books.reject(context, supplier, number, reason)
    return "rejected"


@tool(sentence="Tell {supplier} by mail that invoice {number} was booked")
def tell_supplier(context: ToolContext, supplier: Number, number: Number) -> dict[str, str]:
    """Tell a supplier, at its address in the books, that this run booked an invoice. Returns the Message-ID."""
    row = books.booked(context, supplier, number)
    return send_text(context, row["email"], f"Invoice {number}", BOOKED.format(**row))


@tool(sentence="Mail the report: {subject}")
def mail_report(context: ToolContext, subject: Subject, body: Body) -> dict[str, str]:
    """Mail a report to the address that the run was given. Returns the Message-ID."""
    return send_text(context, context.input["to"], subject, body)


def _invoice(*values: str) -> dict[str, str]:
    """Return the fields of an invoice, whose values are in their order."""
    return dict(zip(Invoice.model_fields, values, strict=True))


def _format_amount(amount: Decimal | None) -> str | None:
    return None if amount is None else format(amount, "f")
