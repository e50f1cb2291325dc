"""Template filters that group the digits of a number. Its text stays as it is, so that it is copied unchanged."""

import json
import re
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from runtime.core.documents.budget_text import to_text
from runtime.core.values.budgets import MICROS, Limit
from runtime.web.display import escape_visible

register = template.Library()

_LONG = re.compile(r"(?<![\w.,:/⟦+-])(\d{5,}(?:\.\d+)?)(?![\w,:/-]|\.\d)", re.ASCII)
MAX_PLAIN = 4  # digits that are not grouped
MAX_DIGITS = 40  # a longer number is shown as any text
_PARTS = re.compile(r"(-?)(\d+)((?:\.\d+)?)", re.ASCII)


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
    """Group the digits before the point by threes; empty if the value is no number in plain digits."""
    text = _plain(value)
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
def dollars(micros: float) -> str:
    """Return millionths of a US dollar as dollars: from one dollar on with two decimals, else exactly."""
    exact = round(micros)
    return f"{exact / MICROS:.2f}" if exact >= MICROS else to_text(Limit.MICROS, exact)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, int | float) else ""
