"""Template filters that group the digits of a number. Its text stays as it is, so that it is copied unchanged."""

import json
import re
from typing import Any

from django import template
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from runtime.core.values.budgets import MICROS, Limit, to_text
from runtime.web.display import escape_visible

register = template.Library()

_LONG = re.compile(r"(?<![\w.,:/⟦+-])(\d{5,}(?:\.\d+)?)(?![\w,:/-]|\.\d)", re.ASCII)
MAX_PLAIN = 3  # digits that are not grouped
MAX_DIGITS = 40  # a longer number is shown as any text
_CURRENCY = re.compile(r"(?!JPY|KRW|BHD|KWD|TND)[A-Z]{3}|euros|dollars")
CURRENCIES = frozenset({"EUR", "USD", "GBP", "CHF", "JPY", "euros", "dollars"})
_ONE_DECIMAL = re.compile(r"-?\d+\.\d", re.ASCII)
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
def money(value: Any, unit: str = "") -> SafeString:
    """Group the digits of a number, and write the second decimal of a currency: 1250.5 euros as 1 250.50."""
    exact = _plain(value)
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


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, int | float) else ""
