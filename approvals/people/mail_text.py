"""Writes the mails. They point to pages and decide nothing: a decision needs a login.

An argument stands in a mail only where the author of the tool put it into its sentence.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID

from django.conf import settings
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals.models import Approval, SentMail
from approvals.requests import verification
from runtime.core.values.enums import Risk
from runtime.core.values.limits import plain
from runtime.core.values.texts import write_on_one_line
from runtime.keyring import sealing
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor

MAX_NEWS = 200  # in one mail; the rest follows in the next one
Row = TypeVar("Row", Run, Approval)
OLDEST = timedelta(days=1)  # later the person has been on the pages
# How long a request waits in the inbox before its people are mailed. A call in doubt counts as high risk.
DELAYS: Mapping[Risk, timedelta] = {
    Risk.HIGH: timedelta(0),
    Risk.MEDIUM: timedelta(minutes=5),
    Risk.LOW: timedelta(hours=1),
}
PAUSE = timedelta(minutes=10)  # between two mails to a person, unless a request is urgent
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


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """A run that ended, or a text that was released. `about` is the id of the run, or of the request with the text."""

    about: UUID
    run: UUID
    agent: str
    business_key: str
    event: str


def news(person: str, since: datetime, at: datetime) -> list[News]:
    """Return what this person was not mailed about, without runs that they may not read any more."""
    since = max(since, at - OLDEST)
    readable = Run.objects.filter(
        wiring.access().readable_runs(Actor(person=person)), requester=person
    )
    ended = readable.filter(ended_at__gte=since, removed_at=None)
    entries = [
        _of(run, run.id, str(run.status))
        for run in _unnoticed(ended, person).order_by("ended_at", "id")[:MAX_NEWS]
    ]
    messages = list(_messages(person, since, at))
    runs = readable.in_bulk([approval.run_id for approval in messages])
    entries += [
        _of(runs[approval.run_id], approval.id, "a text for you was released")
        for approval in messages
        if approval.run_id in runs
    ]
    return entries[:MAX_NEWS]


def _messages(person: str, since: datetime, at: datetime) -> Iterator[Approval]:
    """Yield the released messages of a run that has not ended: requests whose call has a text for its requester."""
    rows = Approval.objects.filter(
        Q(effective_at=None) | Q(effective_at__lte=at),
        requester=person,
        status=Approval.Status.APPROVED,
        decided_at__gte=since,
        args__contains=sealing.MARK,
        run__ended_at=None,
    )
    for approval in _unnoticed(rows, person).order_by("decided_at", "id")[:MAX_NEWS]:
        if verification.fault(approval) is None and sealing.held_args(
            approval.tool, json.loads(approval.args)
        ):
            yield approval


def _unnoticed(rows: QuerySet[Row], person: str) -> QuerySet[Row]:
    return rows.exclude(Exists(SentMail.objects.filter(person=person, about=OuterRef("pk"))))


def _of(run: Run, about: UUID, event: str) -> News:
    return News(
        about=about, run=run.id, agent=run.agent, business_key=run.business_key or "", event=event
    )


def is_urgent(approval: Approval) -> bool:
    """Tell whether the people of a request are mailed at once."""
    return approval.is_in_doubt or approval.risk == Risk.HIGH


def may_send(urgent: bool, last: datetime | None, at: datetime) -> bool:
    """Tell whether a person who was last mailed at `last` is mailed now."""
    return urgent or last is None or at - last >= PAUSE


def build_first_mail() -> tuple[str, str]:
    """Return subject and body of the first mail to an address."""
    return "Mail is on", _FIRST.format(account=_link("/account/"))


def build_request_mail(rows: Sequence[Approval], waiting: int) -> tuple[str, str]:
    """Return subject and body of a mail about these requests, the most urgent first."""
    ordered = sorted(rows, key=lambda row: (not is_urgent(row), row.created_at))
    urgent = sum(is_urgent(approval) for approval in rows)
    suffix = f", {urgent} of them urgent" if urgent and len(rows) > 1 else ", urgent" * urgent
    subject = "1 request waits for you" if len(rows) == 1 else f"{len(rows)} requests wait for you"
    listed = [_line(approval) for approval in ordered[:MAX_LISTED]]
    if len(rows) > MAX_LISTED:
        listed.append(f"… and {len(rows) - MAX_LISTED} more\n")
    foot = _FOOT.format(waiting=waiting, inbox=_link("/inbox/"), account=_link("/account/"))
    return subject + suffix, "\n".join([*listed, foot])


def build_run_mail(news: Sequence[News]) -> tuple[str, str]:
    """Return subject and body of a mail about a requester's own runs."""
    count = len({entry.run for entry in news})
    subject = f"{count} of your runs {'has' if count == 1 else 'have'} news"
    listed = [_line_of_run(entry) for entry in news[:MAX_LISTED]]
    if len(news) > MAX_LISTED:
        listed.append(f"… and {len(news) - MAX_LISTED} more\n")
    foot = _FOOT_OF_RUNS.format(runs=_link("/runs/"), account=_link("/account/"))
    return subject, "\n".join([*listed, foot])


def _line_of_run(news: News) -> str:
    name = f"{news.agent} · {news.business_key}" if news.business_key else news.agent
    return f"{_plain(name)}: {news.event}\n{_link(f'/runs/{news.run}/')}\n"


def _line(approval: Approval) -> str:
    until = f"\nExpires {approval.expires_at:%Y-%m-%d %H:%M} UTC" if approval.expires_at else ""
    return f"{_describe(approval)}{until}\n{_link(f'/a/{approval.id}/')}\n"


def _describe(approval: Approval) -> str:
    """Describe a request on one line. A question is an agent's own text, which a mail does not carry."""
    if approval.is_question:
        return "An agent asks you a question"
    label = "In doubt" if approval.is_in_doubt else f"{approval.risk.capitalize()} risk"
    return f"{label}: {_plain(approval.sentence)}"


def _plain(text: str) -> str:
    """Return a text of others on one line, without links."""
    return _LINK.sub(_broken, write_on_one_line(plain(text))[:MAX_SENTENCE])


def _broken(match: re.Match[str]) -> str:
    """Return the begin of a link so that a mail program makes none of it: agents choose values in sentences."""
    return " ".join(match[0])


def _link(path: str) -> str:
    return settings.PUBLIC_URL.rstrip("/") + path
