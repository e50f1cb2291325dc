"""Template filters that show one JSON value in words: nothing, yes and no, numbers, and dates.

The exact value stands in the element's title. A text that reads like such words is marked as a text.
"""

import re
from datetime import datetime
from typing import Any

from django import template
from django.utils.html import format_html
from django.utils.safestring import SafeString

from runtime.web.numbers import is_number, money

register = template.Library()

_DATE = re.compile(
    r"([1-9]\d{3}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?)(Z|[+-]\d\d:?\d\d)?)?",
    re.ASCII,
)
_READS_OTHERWISE = re.compile(
    r"\s*(?:not set|not given|yes|no|null|true|false|empty text|\d+ spaces?"
    r"|[+-]?[\d.,\s]*\d[\d.,\s]*(?:e[+-]?\d+)?|\d{1,2} [a-z]+ \d{4}(?:, [\d:.]+.*)?|[{\[].*[}\]])\s*",
    re.IGNORECASE | re.DOTALL,
)
MAX_WORDS = 60  # characters of a text that may read like another value


@register.filter
def in_words(value: Any) -> SafeString | str:
    """Show nothing, yes, no, a number or a date in words; empty for any other value."""
    if value is None:
        return _word("null", "not set")
    if isinstance(value, bool):
        return _word("true", "yes") if value else _word("false", "no")
    if is_number(value):
        return money(value)
    return _date(value) if isinstance(value, str) else ""


@register.filter
def reads_otherwise(value: str) -> bool:
    """Tell whether a text reads like the words for a value that is no text."""
    return len(value) <= MAX_WORDS and bool(_READS_OTHERWISE.fullmatch(value))


def _word(exact: str, word: str) -> SafeString:
    return format_html('<em class="word" title="{}">{}</em>', exact, word)


def _date(text: str) -> SafeString | str:
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
