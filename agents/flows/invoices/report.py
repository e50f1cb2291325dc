"""Mails which invoices were booked in 24 hours, and which wait. A schedule runs it at night."""

from collections import Counter
from decimal import Decimal

from pydantic import AwareDatetime, BaseModel

from agents.flows.invoices.tools import look_up, mail_report
from agents.sdk import agent
from agents.sdk.scripts import Reply, Turn, call, say, script
from agents.tools.directory import EmailAddress

OF_A_DAY = """\
SELECT state, supplier.name, invoice.number, amount, currency FROM invoice
JOIN supplier ON supplier.number = invoice.supplier
WHERE state = 'waiting'
OR (state = 'booked' AND changed_at > %s::timestamptz - interval '1 day' AND changed_at <= %s::timestamptz)
ORDER BY changed_at"""


class Night(BaseModel):
    """The end of the 24 hours to report on, and the address of the report."""

    until: AwareDatetime
    to: EmailAddress


@script
def report(turn: Turn) -> Reply:
    """Play invoice_report: read the books of 24 hours, and mail its booked and waiting invoices."""
    lookup, until = turn.result("look_up"), turn.input["until"]
    if lookup is None:
        return call("look_up", query=OF_A_DAY, values=[until, until])
    if not lookup.ok:
        return say(f"There is no report: {lookup.why}")
    rows = lookup.content["rows"]
    mail = turn.result("mail_report")
    states = Counter(row[0] for row in rows)
    counts = f"{states['booked']} booked, {states['waiting']} waiting"
    subject = f"Invoices until {until[:16]}: {counts}"
    if mail is None:
        sums: dict[str, Decimal] = {}
        lines = []
        for state, name, number, amount, currency in rows:
            lines.append(f"{state}: {number} of {name}, {amount} {currency}")
            if state == "booked":
                sums[currency] = sums.get(currency, Decimal(0)) + Decimal(amount)
        total = [f"booked in all: {sums[currency]} {currency}" for currency in sorted(sums)]
        body = "\n".join([*lines, *total]) or "No invoice was booked, and none waits."
        return call("mail_report", subject=subject, body=body)
    return say(f"{subject}. The report was {'mailed' if mail.ok else f'not mailed: {mail.why}'}.")


invoice_report = agent(
    name="invoice_report",
    description="Mails which invoices were booked in 24 hours, and which wait.",
    instructions="""
        You report on the invoices of 24 hours. Look up in the books those that were booked in them, by
        changed_at, and all that wait. Mail one line for each, with supplier, number, amount and
        currency, and the sum of the booked ones by currency. End with how many there were of each.
    """,
    input=Night,
    model=report,
    tools=[look_up, mail_report],
    steps=("Look up the invoices of the day", "Mail the report"),
)
