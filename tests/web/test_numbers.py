"""Numbers for reviewers: grouped digits, units, ids last, and long values folded but whole."""

import json
from html import unescape
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags

from approvals.web.components.arguments import arguments, fields
from runtime.web.scalars import digits, money
from tests.support.office import Office
from tests.support.pages import has, in_order, text

EUR = {"properties": {"worth": {"type": "number", "unit": "EUR"}, "days": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("value", "groups"),
    [
        (250, ["250"]),
        (1250, ["1", "250"]),
        (-0.0, ["-0.0"]),
        (1e3, ["1", "000.0"]),
        (12500.0, ["12", "500.0"]),
        (-1234567, ["-1", "234", "567"]),
        ("0012345.50", ["0", "012", "345.50"]),
        (1e21, []),
        ("1e9", []),
        ("12 500", []),
        (" 12345", []),  # the space is a part of the text
        ("\u0661\u0662\u0663\u0664\u0665", []),  # digits that are not ASCII
        (True, []),
        (None, []),
        (10**50, []),
    ],
)
def test_digits_are_grouped_and_the_text_stays(value: Any, groups: list[str]) -> None:
    shown = digits(value)
    assert strip_tags(shown) == "".join(groups)
    assert shown.replace("</span>", "").split('<span class="g">') == (groups or [""])


@pytest.mark.parametrize(
    ("args", "units"),
    [
        ({"amount": 5, "currency": "EUR"}, ["EUR", ""]),
        ({"amount": "5.00", "currency": "EUR"}, ["EUR", ""]),
        ({"fee": 5, "fee_currency": "USD", "level": 3, "currency": "EUR"}, ["USD", "", "", ""]),
        ({"level": 3, "currency": "EUR"}, ["", ""]),
        ({"amount_cents": 5, "timeout_seconds": 2, "seconds": 1}, ["cents", "seconds", ""]),
        ({"amount_cents": 12500, "currency": "EUR"}, ["EUR cents", ""]),
        ({"amount": True, "currency": "EUR"}, ["", ""]),
        ({"amount": 5, "currency": "EUR, already approved"}, ["", ""]),
        ({"amount": 5, "currency": ["EUR"]}, ["", ""]),
        ({"worth": 5, "days": 2, "euros": 3}, ["EUR", "", "euros"]),
    ],
)
def test_a_unit_comes_from_the_schema_or_the_call(args: Any, units: list[str]) -> None:
    assert [one.unit for one in arguments(args, EUR) if one.is_given] == units


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1250.0, "EUR", "1250.00"),
        (1250, "EUR", "1250"),
        (0.125, "EUR", "0.125"),
        (1250.0, "JPY", "1250.0"),
        (1250.0, "days", "1250.0"),
        ("1250.5", "EUR", "1250.5"),  # a text is shown as it is
        (1e21, "EUR", "1e+21"),
        (10**50, "", f"1{'0' * 50}"),
    ],
)
def test_money_has_its_cents(value: Any, unit: str, words: str) -> None:
    assert strip_tags(money(value, unit)) == words


def test_ids_and_years_are_not_grouped() -> None:
    (year, count, account) = arguments({"account_id": 12345, "year": 2026, "count": 2026}, {})
    assert (year.is_amount, count.is_amount, account.is_amount) == (False, True, False)


def test_ids_are_last() -> None:
    code = "0123456789abcdef01234567"
    found = fields({"account_id": 1, "paid": 2, "uuid": 3, "orderId": 4, "to": code, "grid": 5})
    assert [one.name for one in found] == ["paid", "grid", "account_id", "uuid", "orderId", "to"]
    assert [one.is_id for one in found] == [False, False, True, True, True, True]


def test_an_amount_is_grouped_and_a_long_text_is_folded_whole(bea: Client, office: Office) -> None:
    long = "line\n" * 200
    args = {"username": "x", "security_level": 1, "amount": 12500.5, "currency": "EUR"}
    page = text(bea, office.request(office.start(args={**args, "note": long})))
    amount = '<span class="amount" title="12500.5">12<span class="g">500</span>.50</span>'
    has(page, f'{amount} <bdi class="unit">EUR</bdi>')
    in_order(page, "Show all 1000 characters", long.rstrip())


MAIL = {"properties": {name: {"type": "string"} for name in ("body", "cc", "subject", "to", "x")}}


def test_a_mail_reads_as_a_mail() -> None:
    rows = arguments({"x": 1, "body": "**b**", "subject": "**s**", "cc": "c", "to": "t"}, MAIL)
    assert [row.name for row in rows if row.is_given] == ["to", "cc", "subject", "body", "x"]
    assert [row.name for row in rows if row.is_letter] == ["body"]
    assert rows[2].markdown == rows[3].markdown == ""  # a mail is plain text
    assert not any(row.is_letter for row in arguments({"body": "b", "to": "t"}, MAIL))
    assert not any(row.is_letter for row in arguments({"body": "b", "to": "t", "subject": "s"}, {}))


@pytest.mark.parametrize(
    ("rule", "value", "is_rendered"),
    [
        ({"contentMediaType": "text/markdown"}, "plain", True),
        ({"format": "markdown"}, "plain", True),
        ({}, "plain", False),
        ({}, "the **sum**", True),
        ({}, "the **sum**\u200b", False),
        ({}, ["**sum**"], False),
    ],
)
def test_markdown_is_rendered_beside_the_text(
    rule: dict[str, Any], value: Any, is_rendered: bool
) -> None:
    (row,) = arguments({"note": value}, {"properties": {"note": rule}})
    assert bool(row.markdown) == is_rendered
    html = render_to_string("components/argument_value.html", {"argument": row})
    assert ("As written" in html) == is_rendered


def test_prose_is_folded_above_two_screens_and_copies_sooner() -> None:
    text = "line\n" * 40
    assert arguments({"note": text}, {})[0].size == 0
    assert arguments({"note": text * 2}, {})[0].size == 400
    assert (fields({"note": text})[0].size, arguments(text, {}, is_copy=True)[0].size) == (200, 200)


def test_the_exact_json_is_one_click_away(bea: Client, office: Office) -> None:
    args = {"username": "x", "security_level": 1, "amount": 12500.5, "roles": ["a", {"b": None}]}
    page = text(bea, office.request(office.start(args=args)))
    has(page, '<ul class="tree">')
    exact = page.partition("As JSON, exactly")[2].partition("</details>")[0]
    assert json.loads(unescape(strip_tags(exact))) == args
