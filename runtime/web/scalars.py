"""Template filters that show a JSON value: nothing, yes and no, numbers, dates, files, and trees of them.

The exact value stands in the element's title. The digits of a number are grouped; its text stays as it is, so that it
is copied unchanged. A text that reads like such words is marked as a text.

A stored file comes from a route of its own, which checks who may read its run, and its bytes. One inside another value
has no address: its checked bytes stand in the page.
"""

import json
import re
from base64 import b64encode
from datetime import datetime
from typing import Any

from django import template
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from runtime.core.run.events import BlobRef
from runtime.core.values.budgets import MICROS, Limit, to_text
from runtime.core.values.json_values import MEDIA_TYPES, decode_file
from runtime.web.display import as_json, escape_visible, spaces

register = template.Library()

_DATE = re.compile(
    r"([1-9]\d{3}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_READS_OTHERWISE = re.compile(
    r"\s*(?:not set|not given|yes|no|null|true|false|empty (?:text|list|object)|\d+ spaces?"
    r"|[+-]?[\d.,\s]*\d[\d.,\s]*(?:e[+-]?\d+)?|\d{1,2} [a-z]+ \d{4}(?:, [\d:.]+.*)?|[{\[].*[}\]])\s*",
    re.IGNORECASE | re.DOTALL,
)
MAX_WORDS = 60  # characters of a text that may read like another value
MAX_DEPTH = 4  # lists and objects in each other; a deeper tree has no room on a phone
MAX_NODES = 1_000  # values in a tree; a larger one is shown as JSON
OPEN_NODES = 12  # values of a branch that is open at first
_BEGINNING = re.compile(r'\{"media_type":"([a-z/]+)","base64":"')
_LONG = re.compile(r"(?<![\w.,:/⟦+-])(\d{5,}(?:\.\d+)?)(?![\w,:/-]|\.\d)", re.ASCII)
MAX_PLAIN = 3  # digits that are not grouped
MAX_DIGITS = 40  # a longer number is shown as any text
_CURRENCY = re.compile(r"(?!JPY|KRW|BHD|KWD|TND)[A-Z]{3}|euros|dollars")
CURRENCIES = frozenset({"EUR", "USD", "GBP", "CHF", "JPY", "euros", "dollars"})
_ONE_DECIMAL = re.compile(r"-?\d+\.\d", re.ASCII)
_PARTS = re.compile(r"(-?)(\d+)((?:\.\d+)?)", re.ASCII)


@register.filter
def in_words(value: Any) -> SafeString | str:
    """Show nothing, yes, no, a number or a date in words; empty for any other value."""
    if value is None:
        return _show_word("null", "not set")
    if isinstance(value, bool):
        return _show_word("true", "yes") if value else _show_word("false", "no")
    if is_number(value):
        return money(value)
    return _show_date(value) if isinstance(value, str) else ""


@register.filter
def reads_otherwise(value: str) -> bool:
    """Return True if a text looks like a value of another type, such as "yes", "12" or "not set"."""
    return len(value) <= MAX_WORDS and bool(_READS_OTHERWISE.fullmatch(value))


@register.filter
def scalar(value: Any) -> SafeString | str:
    """Show a value that is not a list or an object; empty for these."""
    if isinstance(value, str) and not value.strip(" "):
        count = spaces(value)
        words = f"{count} space{'' if count == 1 else 's'}" if value else "empty text"
        return format_html('<em class="muted">{}</em>', words)
    if words := in_words(value):
        return words
    if not isinstance(value, str):
        return ""
    mark = SafeString(' <span class="kind">text</span>') if reads_otherwise(value) else ""
    return format_html("{}{}", escape_visible(value), mark)


@register.filter
def brief_words(value: Any, about: str = "") -> SafeString:
    """Show a value of a preview, in which a number may be written as a text; lists and objects as JSON.

    A number has its cents if the text `about` it names a currency.
    """
    if is_number(value):
        return money(value, next(iter(CURRENCIES.intersection(about.split())), ""))
    number = digits(value) if isinstance(value, str) else ""
    return SafeString(
        number or scalar(value) or escape_visible(json.dumps(value, ensure_ascii=False))
    )


@register.filter
def tree(value: Any) -> SafeString | str:
    """Show a list or an object as a tree; empty for other values, and for one that is too large or too deep."""
    if (
        not isinstance(value, dict | list)
        or _count_values(value) > MAX_NODES
        or _is_deep(value, MAX_DEPTH)
    ):
        return ""
    return _render_branch(value)


@register.filter
def as_file(value: Any) -> SafeString | str:
    """Show a picture or a PDF; empty for a value that is not a file."""
    if isinstance(value, BlobRef):
        match = _BEGINNING.match(value.preview)
        if match is None or match[1] not in MEDIA_TYPES:
            return ""
        return _show(match[1], value.size * 3 // 4, reverse("file", args=[value.digest]))
    file = decode_file(value)
    if file is None:
        return ""
    data = f"data:{file.media_type};base64,{b64encode(file.data).decode()}"
    return _show(file.media_type, len(file.data), data)


@register.simple_tag
def sentence(text: str) -> SafeString:
    """Escape a sentence as `escape_visible` does, and group the digits of its numbers."""
    pieces = _LONG.split(text)  # every second one is a number
    parts = (
        (digits(piece) if at % 2 else escape_visible(piece),) for at, piece in enumerate(pieces)
    )
    return format_html_join("", "{}", parts)


@register.filter
def digits(value: Any) -> SafeString | str:
    """Group the digits before the point by threes; empty if the value is not a number in plain digits."""
    text = _format_plain(value)
    match = _PARTS.fullmatch(text) if len(text) <= MAX_DIGITS else None
    if match is None:
        return ""
    sign, integer, decimals = match.groups()
    if len(integer) <= MAX_PLAIN:
        return format_html("{}", text)
    first = len(integer) % 3 or 3
    groups = ((integer[at : at + 3],) for at in range(first, len(integer), 3))
    grouped = format_html_join("", '<span class="g">{}</span>', groups)
    return format_html("{}{}{}{}", sign, integer[:first], grouped, decimals)


@register.filter
def money(value: Any, unit: str = "") -> SafeString:
    """Group the digits of a number, and write the second decimal of a currency: 1250.5 euros as 1 250.50."""
    exact = _format_plain(value)
    cents = "0" if _CURRENCY.fullmatch(unit) and _ONE_DECIMAL.fullmatch(exact) else ""
    amount = f"{exact}{cents}" if is_number(value) else exact
    return format_html('<span class="amount" title="{}">{}</span>', exact, digits(amount) or exact)


def is_number(value: Any) -> bool:
    """Tell whether a JSON value is a number. True and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@register.filter
def dollars(micros: float) -> str:
    """Return millionths of a US dollar as dollars: from one dollar on with two decimals, else exactly."""
    exact = round(micros)
    return f"{exact / MICROS:.2f}" if exact >= MICROS else to_text(Limit.MICROS, exact)


def _render_branch(value: Any) -> SafeString:
    if not value:
        return _show_word(
            as_json(value), "empty list" if isinstance(value, list) else "empty object"
        )
    if isinstance(value, list):
        rows = format_html_join("", "<li>{}</li>", ((_show_leaf(item),) for item in value))
        return format_html('<ul class="tree">{}</ul>', rows)
    rows = format_html_join(
        "",
        "<div><dt><bdi>{}</bdi></dt><dd>{}</dd></div>",
        ((escape_visible(name), _show_leaf(item)) for name, item in value.items()),
    )
    return format_html('<dl class="tree">{}</dl>', rows)


def _show_leaf(value: Any) -> SafeString:
    """Show a value inside a tree; a large list or object is folded."""
    if not isinstance(value, dict | list):
        return format_html('<span class="raw">{}</span>', scalar(value))
    size = _count_values(value)
    if not value or size <= OPEN_NODES:
        return _render_branch(value)
    noun = "item" if isinstance(value, list) else "field"
    words = f"{len(value)} {noun}{'' if len(value) == 1 else 's'}"
    return format_html("<details><summary>{}</summary>{}</details>", words, _render_branch(value))


def _count_values(value: Any) -> int:
    """Count the values inside a value, itself included, up to a few more than a tree shows."""
    count, pending = 0, [value]
    while pending and count <= MAX_NODES:
        item = pending.pop()
        count += 1
        if isinstance(item, dict):
            pending.extend(item.values())
        elif isinstance(item, list):
            pending.extend(item)
    return count + len(pending)


def _is_deep(value: Any, levels: int) -> bool:
    """Tell whether a value has more levels of lists and objects."""
    if not isinstance(value, dict | list):
        return False
    members = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_deep(member, levels - 1) for member in members)


def _show_word(exact: str, word: str) -> SafeString:
    return format_html('<em class="word" title="{}">{}</em>', exact, word)


def _show_date(text: str) -> SafeString | str:
    match = _DATE.fullmatch(text)
    if match is None:
        return ""
    day, clock, zone = match.groups()
    try:
        date = datetime.fromisoformat(f"{day}T{clock or '00:00'}{zone or ''}")
    except ValueError:
        return ""
    time = f", {clock}" if clock else ""
    offset = {"Z": " UTC", None: ""}.get(zone, f" {zone}")
    words = f"{date.day} {date:%B %Y}{time}{offset}"
    return format_html(
        '<span class="date" title="{}">{}</span>', text, words
    )  # no clock of the reader


def _show(media_type: str, size: int, address: str) -> SafeString:
    kind, words = media_type.partition("/")[2], f"{-(-size // 1000)} kB"
    if media_type.startswith("image/"):
        return format_html(
            '<img class="file" src="{}" alt="Picture ({}, {})" loading="lazy">',
            address,
            kind,
            words,
        )
    return format_html(
        '<a class="file btn" href="{}" download="file.{}">PDF, {}</a>', address, kind, words
    )


def _format_plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, int | float) else ""
