"""Template filters and tags for agent data, times, states and icons."""

import json
import re
from collections.abc import Sequence
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any, Protocol

from django import template
from django.templatetags.static import static
from django.urls import reverse
from django.utils import timezone
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from runtime.core.run.continuation import RunStatus
from runtime.core.run.events import BlobRef
from runtime.core.values.enums import CallState
from runtime.core.values.lookalikes import MAX_CHARACTERS, collect_texts, describe
from runtime.core.values.texts import (
    find_hidden_marks,
    find_joined_emoji,
    format_code_point,
    is_visible,
    name_char,
)
from runtime.reads import time_limits
from runtime.reads.labels import format_agent_title
from runtime.reads.trace.span import Span, SpanKind, SpanResult
from runtime.triggers.sources import SOURCES

register = template.Library()

HOURS: ContextVar[str] = ContextVar("hours", default="24")  # of the reader's clock, 24 or 12

ROW_CHARACTERS = 4_000
SHORT_CHARACTERS = 300
SHORT_LINES = 8
MAX_FACTS = 12
_WRAP = re.compile(r"(?<!\n)\n(?![\s*-])")
NOT_SEARCHED = "Not searched for look-alike letters: this page took too long."


class Piece(Protocol):
    """A part of a value in a comparison."""

    @property
    def text(self) -> str:
        """The text of the part."""

    @property
    def changed(self) -> bool:
        """Whether the part differs from the compared value."""


_ICONS = {
    CallState.PROPOSED: "dot",
    CallState.ADMITTED: "dot",
    CallState.GATED: "pause",
    CallState.REFUSED: "x",
    CallState.DENIED: "nope",
    CallState.STARTED: "play",
    CallState.RETRYING: "clock",
    CallState.WAITING: "clock",
    CallState.DELEGATED: "agent",
    CallState.RETURNED: "check",
    CallState.FAILED: "x",
    CallState.UNKNOWN: "medium",
    CallState.CLOSED: "nope",
}

_KIND_ICONS = {
    SpanKind.QUEUE: "clock",
    SpanKind.AGENT: "agent",
    SpanKind.MODEL: "dot",
    SpanKind.TOOL: "play",
    SpanKind.PERSON: "pause",
    SpanKind.PAUSE: "pause",
    SpanKind.MESSAGE: "person",
    SpanKind.WAIT: "clock",
    SpanKind.AWAIT: "clock",
}

_STATUS: dict[str, tuple[str, str, str]] = {
    RunStatus.QUEUED: ("dot", "", "Queued"),
    RunStatus.RUNNING: ("play", "info", "Working"),
    RunStatus.WAITING: ("clock", "info", "Waiting"),
    RunStatus.SUSPENDED: ("pause", "warn", "Waiting for a person"),
    RunStatus.PAUSED: ("pause", "warn", "Paused"),
    RunStatus.CANCELLING: ("nope", "warn", "Being cancelled"),
    RunStatus.COMPLETED: ("check", "ok", "Finished"),
    RunStatus.FAILED: ("x", "danger", "Failed"),
    RunStatus.CANCELLED: ("nope", "", "Cancelled"),
    RunStatus.EXPORTED: ("play", "", "Exported"),
    RunStatus.QUARANTINED: ("high", "danger", "Quarantined: an admin must check it"),
}

_MANUAL = {
    "inbox": "how-to/clear-the-inbox",
    "runs": "how-to/control-runs",
    "agents": "how-to/write-agents",
    "policies": "how-to/set-policies",
    "prompts": "how-to/change-prompts",
    "schedules": "how-to/schedule-runs",
    "triggers": "how-to/start-runs-by-events",
    "allowances": "how-to/allow-calls",
    "people": "how-to/manage-people",
    "account": "how-to/manage-people",
    "instances": "how-to/use-from-scripts",
    "directories": "how-to/provision-with-scim",
    "subscriptions": "how-to/send-webhooks",
    "kill_switches": "how-to/control-runs",
    "overview": "how-to/monitor",
}


@register.filter
def escape_visible(value: Any) -> SafeString:
    """Escape a text, with the code point in place of each invisible character and each that moves others.

    Plain spaces and line breaks inside the text stay, for CSS to keep. Line breaks at either end are marked too.
    """
    time_limits.check()
    text = value if isinstance(value, str) else as_json(value)
    return _render_visible(text, *_find_ends(text))


@register.filter
def excerpt_visible(text: str) -> SafeString:
    """Escape the beginning of a text as `escape_visible` does. Its end is inside the text, so it is not marked."""
    first, _ = _find_ends(text)
    return _render_visible(text, first, len(text))


@register.filter
def unwrapped(text: str) -> str:
    """Join the lines of each paragraph of an author's description. Lists and indented lines stay as they are."""
    return _WRAP.sub(" ", text)


@register.simple_tag
def lookalikes(*values: Any) -> list[str]:
    """Describe look-alike letters of values, one sentence each."""
    return _describe_lookalikes(*values)


@register.simple_tag
def lookalikes_of_row(*values: Any) -> list[str]:
    """Describe look-alikes within fewer characters: a list has many rows."""
    return _describe_lookalikes(*values, limit=ROW_CHARACTERS)


@register.simple_tag
def parts(pieces: Sequence[Piece], element: str) -> SafeString:
    """Join the parts of one value, changed ones in `element`. Line breaks are marked only at either end."""
    first, last = _find_ends("".join(piece.text for piece in pieces))
    rows, start = [], 0
    for piece in pieces:
        text = _render_visible(piece.text, first - start, last - start)
        rows.append((format_html("<{0}>{1}</{0}>", element, text) if piece.changed else text,))
        start += len(piece.text)
    return format_html_join("", "{}", rows)


@register.filter
def plain_visible(value: str) -> str:
    """Mark characters as `escape_visible` does, for places without elements, such as page titles. Not yet escaped."""
    marks, tail = _find_marks(value, *_find_ends(value))
    return "".join(before + format_code_point(char) for before, char in marks) + tail


@register.filter
def as_json(value: Any) -> str:
    """Format JSON over several lines, without escaping characters."""
    return json.dumps(value, indent=2, ensure_ascii=False)


@register.filter
def is_text(value: Any) -> bool:
    """Tell whether the value is a text."""
    return isinstance(value, str)


@register.filter
def of(mapping: Any, key: Any) -> Any:
    """Look a key up in a mapping; nothing without one."""
    return mapping.get(key) if isinstance(mapping, dict) else None


@register.filter
def facts(value: Any) -> list[tuple[str, Any]]:
    """Return the entries of a small object that has no object or list inside; none for any other value."""
    if not isinstance(value, dict) or not 0 < len(value) <= MAX_FACTS:
        return []
    plain = all(not isinstance(item, dict | list) and is_short(item) for item in value.values())
    return [(str(name), item) for name, item in value.items()] if plain else []


@register.filter
def branches(value: Any) -> list[tuple[str, Any]]:
    """Return the fields of an object, or the items of a list with their numbers; none of any other value."""
    match value:
        case dict():
            return [(str(name), item) for name, item in value.items()]
        case list():
            return [(str(number), item) for number, item in enumerate(value, start=1)]
        case _:
            return []


@register.filter
def is_list(value: Any) -> bool:
    """Tell whether the value is a list."""
    return isinstance(value, list)


@register.filter
def is_short(value: Any) -> bool:
    """Tell whether a value is shown without folding it."""
    if is_stored(value):
        return False
    text = value if isinstance(value, str) else as_json(value)
    return len(text) <= SHORT_CHARACTERS and text.count("\n") < SHORT_LINES


@register.filter
def spaces(value: Any) -> int:
    """Count the spaces of a text that consists of plain spaces; 0 for anything else."""
    return len(value) if isinstance(value, str) and not value.strip(" ") else 0


@register.filter
def is_stored(value: Any) -> bool:
    """Tell whether the value refers to a result that is stored outside its entry."""
    return isinstance(value, BlobRef)


@register.filter
def ago(moment: datetime) -> str:
    """Format the time since a moment, in the largest unit that fits."""
    seconds = int((timezone.now() - moment).total_seconds())
    words = _format_largest_unit(seconds)
    return f"{words} ago" if words else "just now"


@register.filter
def ahead(moment: datetime) -> str:
    """Format the time until a moment, in the largest unit that fits."""
    seconds = int((moment - timezone.now()).total_seconds())
    words = _format_largest_unit(seconds, tolerance=1 / 20)  # 7 days are not 6 a minute later
    return f"in {words}" if words else "in less than a minute" if seconds > 0 else "now"


@register.filter
def duration(time: timedelta) -> str:
    """Format a duration in one or two units: `0.4 s`, `18 s`, `4 min 02 s`, `3 h 05 min`, `12 d 3 h`."""
    if time < timedelta(milliseconds=1):
        return "0 s"
    if time < timedelta(seconds=10):
        return f"{time.total_seconds():.1f} s" if time >= timedelta(milliseconds=100) else "< 0.1 s"
    minutes, seconds = divmod(round(time.total_seconds()), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {seconds:02} s" if minutes else f"{seconds} s"


@register.simple_tag
def clock(moment: datetime, since: datetime) -> str:
    """Render a `<time>` element with the time of day, and the date if it differs from that of `since`."""
    local = timezone.localtime(moment)
    same_day = local.date() == timezone.localtime(since).date()
    text = _format_time(local) if same_day else f"{local:%Y-%m-%d} {_format_time(local)}"
    return format_html('<time datetime="{}">{}</time>', moment.isoformat(), text)


@register.simple_tag
def when(moment: datetime | None) -> str:
    """Render a `<time>` element with date, time and zone; nothing for None."""
    if moment is None:
        return ""
    local = timezone.localtime(moment)
    return format_html(
        '<time datetime="{}">{}</time>',
        moment.isoformat(),
        f"{local:%Y-%m-%d} {_format_time(local)} {local:%Z}",
    )


@register.simple_tag
def manual_of(section: str = "") -> str:
    """Return the address of the manual's page about a section of the navigation."""
    page = _MANUAL.get(section)
    return reverse("manual_page", args=[page]) if page else reverse("manual")


register.filter("title_of", lambda name: escape_visible(format_agent_title(name)))
register.filter("plain_title_of", lambda name: plain_visible(format_agent_title(name)))


@register.simple_tag
def icon(name: str) -> str:
    """Render a decorative icon of the sprite; its text stands beside it."""
    sprite = static("img/icons.svg")
    return format_html(
        '<svg class="i i-{}" viewBox="0 0 24 24" aria-hidden="true"><use href="{}#{}"/></svg>',
        name,
        sprite,
        name,
    )


@register.simple_tag
def state_icon(state: CallState) -> str:
    """Render the icon of a call's state."""
    return icon(_ICONS[state])


@register.simple_tag
def row_icon(row: Span) -> str:
    """Render the icon of a timeline row: of its result if it has one, else of its kind."""
    if row.kind in (SpanKind.TOOL, SpanKind.PERSON):
        if row.result is SpanResult.DONE:
            return icon("check")
        if row.result is SpanResult.BAD:
            return icon("x" if row.kind is SpanKind.TOOL else "nope")
    return icon(_KIND_ICONS[row.kind])


@register.filter
def source_word(source: str | None) -> str:
    """Return the word for an event of this source, empty if a person sent it."""
    kind, colon, _ = (source or "").partition(":")
    if kind == "webhook" and colon:
        return "by webhook"
    return SOURCES[kind].item if kind in SOURCES and colon else ""


@register.simple_tag
def status_badge(status: str) -> str:
    """Render the status of a run as a badge."""
    symbol, tone, words = _STATUS.get(status, ("dot", "", status))
    return format_html('<span class="badge {}">{}{}</span>', tone, icon(symbol), words)


def name_status(status: str) -> str:
    """Return the words for the status of a run, as its badge has them."""
    return _STATUS[status][2]


def _format_time(local: datetime) -> str:
    return f"{local:%I:%M:%S %p}" if HOURS.get() == "12" else f"{local:%H:%M:%S}"


def _describe_lookalikes(*values: Any, limit: int = MAX_CHARACTERS) -> list[str]:
    if time_limits.is_used_up() and sum(map(len, collect_texts(values))) > SHORT_CHARACTERS:
        return [NOT_SEARCHED]
    return describe(*values, limit=limit)


def _find_ends(text: str) -> tuple[int, int]:
    """Return the start and end of the text without surrounding blanks."""
    return len(text) - len(text.lstrip()), len(text.rstrip())


def _render_visible(text: str, first: int, last: int) -> SafeString:
    marks, tail = _find_marks(text, first, last)
    rows = [
        (before, name_char(char), format_code_point(char), "\n" if char == "\n" else "")
        for before, char in marks
    ]
    marked = format_html_join("", '{}<span class="cp" title="{}">{}</span>{}', rows)
    return format_html("{}{}", marked, tail)


def _find_marks(text: str, first: int, last: int) -> tuple[list[tuple[str, str]], str]:
    """Return the characters to mark, each with the text before it, and the text after the last.

    Line breaks are marked before `first` and from `last` on.
    """
    marks: list[tuple[str, str]] = []
    start = 0
    joined, hidden = find_joined_emoji(text), find_hidden_marks(text)
    for index, char in enumerate(text):
        is_shown = index in joined or (is_visible(char) and index not in hidden)
        if is_shown and (first <= index < last or char != "\n"):
            continue
        marks.append((text[start:index], char))
        start = index + 1
    return marks, text[start:]


def _format_largest_unit(seconds: int, *, tolerance: float = 0) -> str:
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            added = tolerance if size >= 3600 else 0
            return f"{int(seconds / size + added)} {unit}"
    return ""
