"""Writes the mails. They point to pages and decide nothing: a decision needs a login.

An argument stands in a mail only where the author of the tool put it into its sentence.
"""

import re
from collections.abc import Sequence

from django.conf import settings

from approvals.models import Approval
from approvals.people.mail_times import is_urgent
from approvals.people.run_news import News
from runtime.core.values.enums import GateKind
from runtime.core.values.limits import plain
from runtime.core.values.texts import write_on_one_line

_LINK = re.compile(r"://|www\.", re.IGNORECASE)
MAX_LISTED = 20
MAX_SENTENCE = 300

_FIRST = """\
You will be mailed about what you chose.

Change this on {account}
"""
_FOOT = """\
All {waiting} that wait for you: {inbox}
A link only shows a request. To decide you log in. Agents chose the values in the sentences.
Change what you are mailed about on {account}
"""
_FOOT_OF_RUNS = """\
Your runs: {runs}
Change what you are mailed about on {account}
"""


def first() -> tuple[str, str]:
    """Return subject and body of the first mail to an address."""
    return "Mail is on", _FIRST.format(account=_link("/account/"))


def of(rows: Sequence[Approval], waiting: int) -> tuple[str, str]:
    """Return subject and body of a mail about these requests, the most urgent first."""
    ordered = sorted(
        rows,
        key=lambda approval: (not is_urgent(approval.kind, approval.risk), approval.created_at),
    )
    urgent = sum(is_urgent(approval.kind, approval.risk) for approval in rows)
    more = f", {urgent} of them urgent" if urgent and len(rows) > 1 else ", urgent" * urgent
    subject = "1 request waits for you" if len(rows) == 1 else f"{len(rows)} requests wait for you"
    listed = [_line(approval) for approval in ordered[:MAX_LISTED]]
    if len(rows) > MAX_LISTED:
        listed.append(f"… and {len(rows) - MAX_LISTED} more\n")
    foot = _FOOT.format(waiting=waiting, inbox=_link("/inbox/"), account=_link("/account/"))
    return subject + more, "\n".join([*listed, foot])


def of_runs(news: Sequence[News]) -> tuple[str, str]:
    """Return subject and body of a mail about a requester's own runs."""
    count = len({one.run for one in news})
    subject = f"{count} of your runs {'has' if count == 1 else 'have'} news"
    listed = [_line_of_run(one) for one in news[:MAX_LISTED]]
    if len(news) > MAX_LISTED:
        listed.append(f"… and {len(news) - MAX_LISTED} more\n")
    foot = _FOOT_OF_RUNS.format(runs=_link("/runs/"), account=_link("/account/"))
    return subject, "\n".join([*listed, foot])


def _line_of_run(news: News) -> str:
    name = f"{news.agent} · {news.business_key}" if news.business_key else news.agent
    return f"{_plain(name)}: {news.what}\n{_link(f'/runs/{news.run}/')}\n"


def _line(approval: Approval) -> str:
    until = f"\nExpires {approval.expires_at:%Y-%m-%d %H:%M} UTC" if approval.expires_at else ""
    return f"{_what(approval)}{until}\n{_link(f'/a/{approval.id}/')}\n"


def _what(approval: Approval) -> str:
    """Describe a request on one line. A question is an agent's own text, which a mail does not carry."""
    if approval.kind == GateKind.QUESTION:
        return "An agent asks you a question"
    what = (
        "In doubt" if approval.kind == GateKind.IN_DOUBT else f"{approval.risk.capitalize()} risk"
    )
    return f"{what}: {_plain(approval.sentence)}"


def _plain(text: str) -> str:
    """Return a text of others on one line, without links."""
    return _LINK.sub(_broken, write_on_one_line(plain(text))[:MAX_SENTENCE])


def _broken(found: re.Match[str]) -> str:
    """Return the begin of a link so that a mail program makes none of it: agents choose values in sentences."""
    return " ".join(found[0])


def _link(path: str) -> str:
    return settings.PUBLIC_URL.rstrip("/") + path
