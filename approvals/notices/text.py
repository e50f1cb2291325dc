"""Writes the mails. They point to pages and decide nothing: a decision needs a login.

An argument stands in a mail only where the author of the tool put it into its sentence.
"""

import re
from collections.abc import Sequence

from django.conf import settings

from approvals.models import Request
from approvals.notices.due import is_urgent
from runtime.core.enums import GateKind
from runtime.core.invisible import on_one_line
from runtime.core.limits import plain

_LINK = re.compile(r"://|www\.", re.IGNORECASE)
MAX_LISTED = 20
MAX_SENTENCE = 300

_FIRST = """\
You will be mailed about requests that wait for your decision.

Change this on {account}
"""
_FOOT = """\
All {waiting} that wait for you: {inbox}
A link only shows a request. To decide you log in. Agents chose the values in the sentences.
Change what you are mailed about on {account}
"""


def first() -> tuple[str, str]:
    """Return subject and body of the first mail to an address."""
    return "Mail about waiting requests is on", _FIRST.format(account=_link("/account/"))


def of(rows: Sequence[Request], waiting: int) -> tuple[str, str]:
    """Return subject and body of a mail about these requests, the most urgent first."""
    ordered = sorted(rows, key=lambda row: (not is_urgent(row.kind, row.risk), row.created_at))
    urgent = sum(is_urgent(row.kind, row.risk) for row in rows)
    more = f", {urgent} of them urgent" if urgent and len(rows) > 1 else ", urgent" * urgent
    subject = "1 request waits for you" if len(rows) == 1 else f"{len(rows)} requests wait for you"
    listed = [_line(row) for row in ordered[:MAX_LISTED]]
    if len(rows) > MAX_LISTED:
        listed.append(f"… and {len(rows) - MAX_LISTED} more\n")
    foot = _FOOT.format(waiting=waiting, inbox=_link("/inbox/"), account=_link("/account/"))
    return subject + more, "\n".join([*listed, foot])


def _line(row: Request) -> str:
    until = f"\nExpires {row.expires_at:%Y-%m-%d %H:%M} UTC" if row.expires_at else ""
    return f"{_what(row)}{until}\n{_link(f'/a/{row.id}/')}\n"


def _what(row: Request) -> str:
    """Describe a request on one line. A question is an agent's own text, which a mail does not carry."""
    if row.kind == GateKind.QUESTION:
        return "An agent asks you a question"
    what = "In doubt" if row.kind == GateKind.IN_DOUBT else f"{row.risk.capitalize()} risk"
    sentence = on_one_line(plain(row.sentence))[:MAX_SENTENCE]
    return f"{what}: {_LINK.sub(_broken, sentence)}"


def _broken(found: re.Match[str]) -> str:
    """Return the begin of a link so that a mail program makes none of it: agents choose values in sentences."""
    return " ".join(found[0])


def _link(path: str) -> str:
    return settings.PUBLIC_URL.rstrip("/") + path
