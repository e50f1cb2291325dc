"""Fills the demonstration with invoices: a folder that Ada's trigger watches, two files in it, and a nightly report."""

import json
from collections.abc import Callable
from typing import Any

from config.local import http_client
from config.local.app_environment import invoices_folder
from config.local.errors import DidNotStart
from config.local.services import Stack

TRIGGER = "Invoice"
SCHEDULE = "Nightly invoice report"

# The second has another IBAN than the books.
SAMPLES = {
    "northern-paper-NP-4711.json": json.dumps(
        {
            "supplier": "S-100",
            "number": "NP-4711",
            "order": "PO-1001",
            "date": "2026-11-26",
            "amount": "1190.00",
            "currency": "EUR",
            "iban": "DE02120300000000202051",
        },
        indent=2,
    ),
    "delta-tools-2026-88.txt": """\
Delta Tools, invoice for your order. Please note our new account.

Supplier: S-200
Number:   2026-88
Order:    PO-1002
Date:     2026-11-27
Amount:   4760.50
Currency: EUR
IBAN:     DE89370400440532013000
""",
}


def ensure(stack: Stack, token: str, say: Callable[[str], None]) -> None:
    """Make the trigger, the schedule and the files at the first start. A start that was killed is completed.

    Ada of an older data folder may have lost her token or her right: then say so, and make nothing.
    """
    if stack.home.get("invoices"):
        return
    try:
        _make(stack, token)
    except DidNotStart as problem:
        say(str(problem))
    else:
        stack.home.set(invoices=True)


def _make(stack: Stack, token: str) -> None:
    folder = invoices_folder(stack.home)
    mapping = {
        "file": "{{data.name}}",
        "invoice": "{{has(data.json) ? data.json : has(data.text) ? data.text : null}}",
    }
    trigger = {"name": TRIGGER, "agent": "invoices", "event": "invoice.filed", "mapping": mapping}
    _have(stack, token, "triggers", {**trigger, "folder": str(folder)})
    report = {"until": "{{time}}", "to": "accounts@example.org"}
    schedule = {"name": SCHEDULE, "agent": "invoice_report", "input": report}
    _have(stack, token, "schedules", {**schedule, "cron": "30 23 * * *", "zone": "UTC"})
    for name, text in SAMPLES.items():
        file = folder / name
        file.write_text(text, encoding="utf-8")
        file.chmod(0o644)  # the sweeper may run under another account


def _have(stack: Stack, token: str, collection: str, body: dict[str, Any]) -> None:
    """Make a trigger or a schedule, unless there is one of this name."""
    path = f"/api/v1/{collection}"
    status, reply = http_client.request(stack.url, "GET", path, token=token)
    if status == 200 and any(entry["name"] == body["name"] for entry in reply["items"]):
        return
    if status == 200:
        status, reply = http_client.request(stack.url, "POST", path, token=token, body=body)
    if status not in (200, 201):
        raise DidNotStart(f"The demonstration has no {collection} for invoices: {status} {reply}")
