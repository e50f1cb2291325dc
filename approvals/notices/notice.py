"""Writes a notice once, for the transports of all kinds. It points to pages and decides nothing: that needs a login.

How much a notice shows is the least of what its reader chose and what the installation allows for the kind of the
channel. Secrets and an agent's own text are in none.
"""

import json
import re
from collections.abc import Mapping
from typing import Any
from uuid import UUID

from django.conf import settings
from pydantic import BaseModel

from approvals.models import Approval, NoticeChannel
from approvals.requests import snapshot, verification
from runtime.core.values import json_schema
from runtime.core.values.enums import Risk
from runtime.core.values.texts import clean_text, write_on_one_line
from runtime.keyring import sealing
from runtime.models import Run

MAX_LISTED = 20
MAX_SENTENCE = 300
MAX_ARGUMENTS = 20
MAX_ARGUMENT = 100  # characters
# Links, and what calls people in chats.
_LINK = re.compile(r"://|www\.|@(everyone|here|channel|all)\b|<[!@]", re.IGNORECASE)
_LEVELS = list(NoticeChannel.Detail)  # from the least on


class NoticeEntry(BaseModel, frozen=True):
    """What a notice says about one request or one run."""

    lines: tuple[str, ...]
    link: str


class Notice(BaseModel, frozen=True):
    """A title, entries and closing lines, all plain text. `requests` has those told of, also without an entry."""

    title: str
    entries: tuple[NoticeEntry, ...] = ()
    foot: tuple[str, ...] = ()
    requests: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """All but the title."""
        listed = ["".join(f"{line}\n" for line in (*row.lines, row.link)) for row in self.entries]
        return "\n".join([*listed, "".join(f"{line}\n" for line in self.foot)])


def is_urgent(approval: Approval) -> bool:
    """Tell whether the people of a request are told at once."""
    return approval.is_in_doubt or approval.risk == Risk.HIGH


def choose_detail(channel: NoticeChannel) -> NoticeChannel.Detail:
    """Return how much notices on this channel show."""
    limit = settings.SIGNOFF_NOTICES.get(channel.kind, NoticeChannel.Detail.TITLE)
    return min(NoticeChannel.Detail(channel.shows), NoticeChannel.Detail(limit), key=_LEVELS.index)


def write_first(kind: str) -> Notice:
    """Return the first notice on a channel, which a person may want again."""
    foot = ("You will be told what you chose.", "", f"Change this on {link('/account/notices/')}")
    return Notice(title=f"{kind.capitalize()} is on", foot=foot)


def write_requests(
    rows: list[Approval],
    waiting: int,
    content: NoticeChannel.Detail,
    notes: Mapping[UUID, str],
) -> Notice:
    """Write about these of the `waiting` requests, the most urgent first. `notes` say why some are told again."""
    ordered = sorted(rows, key=lambda row: (not is_urgent(row), row.created_at))
    urgent = sum(is_urgent(approval) for approval in rows)
    suffix = f", {urgent} of them urgent" if urgent and len(rows) > 1 else ", urgent" * urgent
    title = "1 request waits for you" if len(rows) == 1 else f"{len(rows)} requests wait for you"
    foot = (
        *_count_unlisted(len(rows)),
        f"All {waiting} that wait for you: {link('/inbox/')}",
        "A link only shows a request. To decide you log in. Agents chose the values in the sentences.",
        f"Change what you are told on {link('/account/notices/')}",
    )
    again = {notes.get(approval.pk, "") for approval in rows}
    prefix = f"{again.pop()}: " if len(again) == 1 and "" not in again else ""
    return Notice(
        title=prefix + title + suffix,
        entries=tuple(
            _write_entry(approval, content, notes.get(approval.pk, ""))
            for approval in ordered[:MAX_LISTED]
        ),
        foot=foot,
        requests=tuple(str(approval.pk) for approval in rows),
    )


def write_runs(news: list[tuple[Run, str]], content: NoticeChannel.Detail) -> Notice:
    """Write about a requester's own runs, each with its event."""
    count = len({run.pk for run, _ in news})
    foot = (
        *_count_unlisted(len(news)),
        f"Your runs: {link('/runs/')}",
        f"Change what you are told on {link('/account/notices/')}",
    )
    entries = []
    for run, event in news[:MAX_LISTED]:
        key = run.business_key
        name = _write_plain(f"{run.agent} · {key}" if key else run.agent)
        if content == NoticeChannel.Detail.NOTHING:
            name = "A run"
        entries.append(NoticeEntry(lines=(f"{name}: {event}",), link=link(f"/runs/{run.pk}/")))
    return Notice(
        title=f"{count} of your runs {'has' if count == 1 else 'have'} news",
        entries=tuple(entries),
        foot=foot,
    )


def select_visible_arguments(tool: str, args: object, schema: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without the values that are sealed, held, or secret by its schema."""
    readable = sealing.redact_args(tool, args)
    if not isinstance(readable, dict):
        return {"arguments": readable}
    secret = json_schema.write_only(schema) & readable.keys()
    return readable | dict.fromkeys(secret, sealing.REDACTED)


def link(path: str) -> str:
    """Return the address of a page."""
    return settings.PUBLIC_URL.rstrip("/") + path


def _count_unlisted(number: int) -> tuple[str, ...]:
    return (f"… and {number - MAX_LISTED} more", "") if number > MAX_LISTED else ()


def _write_entry(approval: Approval, content: NoticeChannel.Detail, note: str) -> NoticeEntry:
    label = "In doubt" if approval.is_in_doubt else f"{approval.risk.capitalize()} risk"
    if approval.is_question:  # which is an agent's own text
        text = "An agent asks you a question"
    elif content == NoticeChannel.Detail.NOTHING:
        text = label
    else:
        text = f"{label}: {_write_plain(approval.sentence)}"
    lines = [f"{note}: {text}" if note else text]
    if content == NoticeChannel.Detail.ARGUMENTS and not approval.is_question:
        schema = json.loads(snapshot.read_schema_text(approval.schema))
        args = select_visible_arguments(
            approval.tool, verification.decode_arguments(approval), schema
        )
        for name, value in list(args.items())[:MAX_ARGUMENTS]:
            text = value if isinstance(value, str) else json.dumps(value)
            lines.append(_write_plain(f"{name}: {text}", MAX_ARGUMENT))
    if approval.expires_at:
        lines.append(f"Expires {approval.expires_at:%Y-%m-%d %H:%M} UTC")
    return NoticeEntry(lines=tuple(lines), link=link(f"/a/{approval.pk}/"))


def _write_plain(text: str, maximum: int = MAX_SENTENCE) -> str:
    """Return a text of others on one line, in which no program finds a link: agents choose values in sentences."""
    return _LINK.sub(
        lambda match: " ".join(match[0]), write_on_one_line(clean_text(text))[:maximum]
    )
