"""Creates the demo people and invoices at the first start, and revokes their access once credentials.json is deleted.

Deleting credentials.json withdraws its secrets. The ids of its tokens are therefore also stored next to it. The next
start revokes these tokens, and ends the passwords and sessions of the file's people. It ends changed passwords too,
because without the file a changed password looks like the first one. The people, their runs and their decisions stay;
`make manage` gives them new passwords.
"""

import json
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from config.env import environment
from config.local import data_dir, demo_people, http_client
from config.local.app_environment import locate_invoices_folder, read_scim_token
from config.local.errors import DidNotStart, Refused
from config.local.services import Stack

Say = Callable[[str], None]
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


def check(folder: Path, with_demo: bool | None) -> None:
    """Raise Refused if a folder with demo people is started without them. `with_demo` is None if not chosen."""
    path = folder / "credentials.json"
    if with_demo is False and path.exists():
        raise Refused(
            f"{path} belongs to a demo: delete it, which ends its tokens and passwords,"
            " or choose another folder with HOME_DIR=…"
        )


def ensure_demo(stack: Stack, host: str, with_demo: bool | None, say: Say) -> dict[str, Any] | None:
    """Return the content of credentials.json, or None if there are no demo people. That choice is remembered."""
    home = stack.home
    remembered = home.get("demo_people")
    if home.credentials.exists():
        pass
    elif remembered is not None:
        _run(stack, ["--withdraw"], remembered)
        names = ", ".join(remembered)
        say(
            f"credentials.json was deleted, so the tokens, passwords and sessions of {names} have ended."
            f" They stay, and get new passwords with {_format_command(stack.home, 'people password NAME')}"
        )
        home.set(demo=False, demo_people=None)
    elif with_demo is False or (with_demo is None and home.get("demo") is False):
        home.set(demo=False)
    else:
        say("Making the demo people")
        _run(stack, [str(home.credentials)], _describe_stack(stack, host))
        home.set(demo=True)
    credentials = demo_people.update_addresses(
        home.credentials, url=stack.url, scim_url=stack.scim_url
    )
    if credentials is not None:
        # The public id of each person's token
        home.set(
            demo_people={
                name: person["token"].split("_")[1] for name, person in credentials["users"].items()
            }
        )
    return credentials


def describe_next_step(home: data_dir.DataDir) -> str:
    """Return the command that creates the first admin in this folder."""
    return _format_command(home, "people add NAME --group admins")


def ensure(stack: Stack, token: str, say: Callable[[str], None]) -> None:
    """Make the trigger, the schedule and the files at the first start. A start that was killed is completed.

    Ada of an older data folder may have lost her token or her right: then say so, and make nothing.
    """
    if stack.home.get("invoices"):
        return
    try:
        folder = locate_invoices_folder(stack.home)
        mapping = {
            "file": "{{data.name}}",
            "invoice": "{{has(data.json) ? data.json : has(data.text) ? data.text : null}}",
        }
        trigger = {
            "name": TRIGGER,
            "agent": "invoices",
            "event": "invoice.filed",
            "mapping": mapping,
        }
        _ensure_entry(stack, token, "triggers", {**trigger, "folder": str(folder)})
        report = {"until": "{{time}}", "to": "accounts@example.org"}
        schedule = {"name": SCHEDULE, "agent": "invoice_report", "input": report}
        _ensure_entry(stack, token, "schedules", {**schedule, "cron": "30 23 * * *", "zone": "UTC"})
        for name, text in SAMPLES.items():
            file = folder / name
            file.write_text(text, encoding="utf-8")
            file.chmod(0o644)  # the sweeper may run under another account
    except DidNotStart as problem:
        say(str(problem))
    else:
        stack.home.set(invoices=True)


def _describe_stack(stack: Stack, host: str) -> dict[str, Any]:
    real_directory = bool(stack.environ.get("SCIM_URL"))
    real_mail = bool(stack.environ.get("EMAIL_URL"))
    return {
        "host": host,
        "url": stack.url,
        "scim": {
            "url": stack.scim_url,
            "token": None if real_directory else read_scim_token(stack.home, stack.environ),
        },
        "mail": {"folder": None if real_mail else str(stack.home.folder / "mail")},
    }


def _run(stack: Stack, arguments: list[str], document: dict[str, Any]) -> None:
    """Run `demo_people` as the starter's account, because only the starter may read the file."""
    process = subprocess.run(
        [sys.executable, "-m", "config.local.demo_people", *arguments],
        input=json.dumps(document),
        capture_output=True,
        text=True,
        cwd=environment.ROOT,
        env=stack.build_environment(),
        check=False,
    )
    if process.returncode:
        raise DidNotStart(
            f"the demo people are not as they should be: {process.stderr.strip()[-500:]}"
        )


def _format_command(home: data_dir.DataDir, command: str) -> str:
    home_dir = (
        ""
        if home.folder == data_dir.choose_default_folder()
        else f"HOME_DIR={shlex.quote(str(home.folder))} "
    )
    return f'make manage {home_dir}CMD="{command}"'


def _ensure_entry(stack: Stack, token: str, collection: str, body: dict[str, Any]) -> None:
    """Make a trigger or a schedule, unless there is one of this name."""
    path = f"/api/v1/{collection}"
    status, reply = http_client.request(stack.url, "GET", path, token=token)
    if status == 200 and any(entry["name"] == body["name"] for entry in reply["items"]):
        return
    if status == 200:
        status, reply = http_client.request(stack.url, "POST", path, token=token, body=body)
    if status not in (200, 201):
        raise DidNotStart(f"The demonstration has no {collection} for invoices: {status} {reply}")
