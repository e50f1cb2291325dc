"""How values are shown."""

import itertools
import json
import re
from html import unescape
from typing import Any, get_args

import pytest
from django.template.loader import render_to_string
from django.test import Client
from django.utils.html import strip_tags

from approvals.reads.filters import VERDICTS
from approvals.reads.similar import compare_arguments
from approvals.web.components.arguments import list_arguments, list_fields
from approvals.web.pages.overview import VERDICT_SERIES
from config.env.environment import ROOT
from runtime.core.run.continuation import RunStatus
from runtime.reads.filters import TABS
from runtime.reads.labels import MESSAGES, MessageKind
from runtime.web.display import escape_visible, excerpt_visible, parts, plain_visible, unwrapped
from runtime.web.markdown import MAX_MARKDOWN, has_markdown, render_markdown
from runtime.web.scalars import MAX_NODES, digits, money, tree
from tests.support.office import Office
from tests.support.pages import has, in_order, text

HIDDEN = (
    "\x00\x1b\t\r\x7f\u0085\u00a0\u00ad\u034f\u061c\u115f\u180e\u2009\u200b\u200d\u2028\u2029\u202e"
    "\u2066\u2800\u3000\u3164\ufe0f\ufeff\uffa0\ud800\U000e0041\U000e0101"
)


@pytest.mark.parametrize("char", HIDDEN, ids=lambda char: f"U+{ord(char):04X}")
@pytest.mark.parametrize("text", ["{}end", "mid{}dle", "start{}"])
def test_invisible_characters_are_shown_as_code_points(char: str, text: str) -> None:
    for shown in (escape_visible(text.format(char)), plain_visible(text.format(char))):
        assert char not in shown
        assert f"⟦U+{ord(char):04X}⟧" in shown


def test_marks_drawn_over_each_other_are_shown_as_code_points() -> None:
    marked = escape_visible("Z" + "\u0301" * 400 + "algo, q\u0323\u0307")
    assert (marked.count("\u0301"), marked.count("⟦U+0301⟧")) == (4, 396)
    assert marked.endswith("algo, q\u0323\u0307")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        *((text, text) for text in ("New Hire", "Ñëw-Hïrë", "日本語", "שלום", "a\nb")),
        ("<img src=x> & '\"", "&lt;img src=x&gt; &amp; &#x27;&quot;"),
        (" x \n", ' x <span class="cp" title="control character">⟦U+000A⟧</span>\n'),
        ({"who": ["<b>"]}, "{\n  &quot;who&quot;: [\n    &quot;&lt;b&gt;&quot;\n  ]\n}"),
    ],
)
def test_text_is_escaped_and_a_value_is_json(value: object, shown: str) -> None:
    assert escape_visible(value) == shown


def test_the_end_of_an_excerpt_is_not_marked_as_the_end_of_the_value() -> None:
    mark = '<span class="cp" title="control character">⟦U+000A⟧</span>\n'
    assert excerpt_visible("\nwe are sorry.\n") == f"{mark}we are sorry.\n"


FAMILY = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


@pytest.mark.parametrize("text", [FAMILY, "\U0001f469\u200d\u2764\ufe0f\u200d\U0001f468"])
def test_the_joiners_of_an_emoji_family_are_no_attack(text: str) -> None:
    assert escape_visible(f"Hi {text}!") == f"Hi {text}!"


@pytest.mark.parametrize(
    "text",
    [
        "\U0001f600\u200d\U0001f600",  # looks like two emoji without a joiner
        f"{FAMILY}\u200d",
        f"{FAMILY}\u200d\U0001f467\u200d\U0001f467",
        "\u200d\U0001f468\u200dx",
        "pay\u200dpal",
    ],
)
def test_other_joiners_are_marked(text: str) -> None:
    assert "⟦U+200D⟧" in escape_visible(text)


def test_the_lines_of_a_paragraph_are_joined_and_lists_stay() -> None:
    text = "Read the books:\nall of them.\n\nOne by one:\n- a\n- b\n  indented"
    assert unwrapped(text) == "Read the books: all of them.\n\nOne by one:\n- a\n- b\n  indented"


def test_a_forged_mark_does_not_look_like_a_real_one() -> None:
    assert "<span" not in escape_visible("⟦U+202E⟧")
    mark = '<span class="cp" title="right-to-left override">⟦U+202E⟧</span>'
    assert escape_visible("\u202e") == mark


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("admin", "admin ", "It ends with 1 space, before with no spaces."),
        ("  admin", "admin", "It begins with no spaces, before with 2 spaces."),
        ("admin ", "root ", ""),
        ("admin", "ad min", ""),
        (None, "admin ", "It ends with 1 space."),
    ],
)
def test_spaces_that_differ_at_an_end_are_told(was: str | None, now: str, said: str) -> None:
    (change,) = compare_arguments({} if was is None else {"to": was}, {"to": now})
    assert change.spaces == said
    assert "⟦" not in parts(change.now, "ins")


def test_changed_words_are_marked_and_spaces_beside_them_are_plain() -> None:
    (change,) = compare_arguments({"to": "ACME Supplies GmbH"}, {"to": "ACNE Supplies  L\u00a0d"})
    assert parts(change.was, "del") == "AC<del>M</del>E Supplies<del> GmbH</del>"
    now = parts(change.now, "ins")
    assert now.startswith("AC<ins>N</ins>E Supplies<ins>  L")
    assert "⟦U+00A0⟧" in now


def test_no_script_makes_code_or_markup_of_text() -> None:
    refused = re.compile(r"\beval\(|new Function|insertAdjacentHTML|innerHTML\s*=|document\.write")
    for script in (ROOT / "static" / "js").glob("*.js"):
        assert refused.search(script.read_text()) is None, script.name


def test_charts_tabs_and_messages_leave_out_no_verdict_status_or_kind() -> None:
    assert {series.key for series in VERDICT_SERIES} == set(VERDICTS)
    assert {status for tab in TABS.values() for status in tab} == set(RunStatus)
    assert set(MESSAGES) == set(get_args(MessageKind))


# Numbers and long texts


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
    assert [one.unit for one in list_arguments(args, EUR) if one.is_given] == units


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
    (year, count, account) = list_arguments({"account_id": 12345, "year": 2026, "count": 2026}, {})
    assert (year.is_amount, count.is_amount, account.is_amount) == (False, True, False)


def test_ids_are_last() -> None:
    code = "0123456789abcdef01234567"
    found = list_fields(
        {"account_id": 1, "paid": 2, "uuid": 3, "orderId": 4, "to": code, "grid": 5}
    )
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
    rows = list_arguments({"x": 1, "body": "**b**", "subject": "**s**", "cc": "c", "to": "t"}, MAIL)
    assert [row.name for row in rows if row.is_given] == ["to", "cc", "subject", "body", "x"]
    assert [row.name for row in rows if row.is_letter] == ["body"]
    assert rows[2].markdown == rows[3].markdown == ""  # a mail is plain text
    assert not any(row.is_letter for row in list_arguments({"body": "b", "to": "t"}, MAIL))
    assert not any(
        row.is_letter for row in list_arguments({"body": "b", "to": "t", "subject": "s"}, {})
    )


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
    (row,) = list_arguments({"note": value}, {"properties": {"note": rule}})
    assert bool(row.markdown) == is_rendered
    html = render_to_string("components/argument_value.html", {"argument": row})
    assert ("As written" in html) == is_rendered


def test_prose_is_folded_above_two_screens_and_copies_sooner() -> None:
    text = "line\n" * 40
    assert list_arguments({"note": text}, {})[0].size == 0
    assert list_arguments({"note": text * 2}, {})[0].size == 400
    assert (
        list_fields({"note": text})[0].size,
        list_arguments(text, {}, is_copy=True)[0].size,
    ) == (200, 200)


def test_the_exact_json_is_one_click_away(bea: Client, office: Office) -> None:
    args = {"username": "x", "security_level": 1, "amount": 12500.5, "roles": ["a", {"b": None}]}
    page = text(bea, office.request(office.start(args=args)))
    has(page, '<ul class="tree">')
    exact = page.partition("As JSON, exactly")[2].partition("</details>")[0]
    assert json.loads(unescape(strip_tags(exact))) == args


# Single values


VALUES: list[Any] = [
    *(None, True, False, 0, -0.0, 1, 1.0, 1e3, 1000, 1250, 12500, 1e21, 10**50, "", " ", "  "),
    *("null", "not set", "not given", "yes", "Yes", "no", "true", "empty text", "1 space"),
    *("0", "-0.0", "1", "1.0", "1000", "1 000", "1,000", "1e3", "1250", "12500", "1e+21"),
    *("2026-12-01", "1 December 2026", "2026-12-01T10:30Z", "1 December 2026, 10:30 UTC"),
    *("2026-12-01T10:30", "1 December 2026, 10:30", "2026-12-01T10:30:00+02:00"),
    *([], {}, "[]", "{}", [1], "[1]", ["1"], {"a": None}, {"a": "null"}, [True], ["yes"]),
    *("a\u202eb", "ab", "a\u200bb", "p\u0430ypal", "paypal", "<b>x</b>", "&lt;b&gt;x&lt;/b&gt;"),
]


def words(value: Any) -> str:
    return " ".join(strip_tags(render_to_string("components/value.html", {"value": value})).split())


def html(value: Any) -> str:
    return render_to_string("components/value.html", {"value": value})


def test_no_value_looks_like_another() -> None:
    for one, other in itertools.combinations(VALUES, 2):
        assert words(one) != words(other), (one, other)


@pytest.mark.parametrize(
    ("value", "text", "exact"),
    [
        (None, "not set", "null"),
        (True, "yes", "true"),
        (False, "no", "false"),
        (12500, "12500", "12500"),
        ("2026-12-01", "1 December 2026", "2026-12-01"),
        ("2026-12-01T10:30:05.25Z", "1 December 2026, 10:30:05.25 UTC", "2026-12-01T10:30:05.25Z"),
        ("2026-12-01 10:30+02:00", "1 December 2026, 10:30 +02:00", "2026-12-01 10:30+02:00"),
        ("2026-02-30", "2026-02-30", ""),
        ("0001-01-01", "0001-01-01", ""),
        ("2026-12-01 and more", "2026-12-01 and more", ""),
        ("yes", "yes text", ""),
        ("12500", "12500 text", ""),
    ],
)
def test_a_value_reads_in_words_with_the_exact_one_behind(
    value: Any, text: str, exact: str
) -> None:
    assert words(value) == text
    assert (f'title="{exact}"' in html(value)) == bool(exact)


def test_a_json_value_is_whole() -> None:
    value = {"a": [1, {"b": "x" * 5_000}]}
    assert json.loads(words(value).replace("&quot;", '"')) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": None, "b": [True, "x"]}, "anot setbyesx"),
        ([[], {}], "empty listempty object"),
        ({"<b>\u202e": "<i>"}, "&lt;b&gt;⟦U+202E⟧&lt;i&gt;"),
        ([list(range(20))], f"20 items{''.join(map(str, range(20)))}"),
        ([1] * MAX_NODES, ""),
        ([[[[1]]]], "1"),
        ([[[[[1]]]]], ""),
        ("text", ""),
        (1, ""),
    ],
)
def test_a_tree_shows_every_value_until_it_is_too_large(value: Any, text: str) -> None:
    assert strip_tags(tree(value)) == text


# Markdown


ELEMENTS = frozenset(
    {"p", "strong", "em", "ul", "ol", "li", "blockquote", "code", "pre", "br", "hr", "span"}
)


@pytest.mark.parametrize(
    ("text", "html"),
    [
        ("# Hi", '<p class="heading"><strong>Hi</strong></p>'),
        ("a\nb", "<p>a<br>b</p>"),
        ("1. a\n1. b", '<ol><li value="1">a</li><li value="1">b</li></ol>'),
        ("**b** *i* `c`", "<p><strong>b</strong> <em>i</em> <code>c</code></p>"),
        ('[a](http://x.y "t")', '<p><span class="link">a</span> ⟨http://x.y t⟩</p>'),
        ("[a](javascript:x)", '<p><span class="link">a</span> ⟨javascript:x⟩</p>'),
        ("![a](http://x)", '<p><span class="meta">image, not loaded:</span> a ⟨http://x⟩</p>'),
        ("<b>x</b> <!-- c -->", "<p>&lt;b&gt;x&lt;/b&gt; &lt;!-- c --&gt;</p>"),
        ("&#8203; &amp;", "<p>&amp;#8203; &amp;amp;</p>"),
        ("[x]: http://hidden.example", "<p>[x]: http://hidden.example</p>"),
    ],
)
def test_markdown_is_rendered(text: str, html: str) -> None:
    assert render_markdown(text) == html


@pytest.mark.parametrize(
    "text",
    [
        "**a**\u200b",
        "**a**\u202e",
        "**a**\r\nb",
        f"{'>' * 30} too deep",
        "pay 2*3*4 now",
        "x" * (MAX_MARKDOWN + 1),
    ],
)
def test_what_would_hide_something_is_not_rendered(text: str) -> None:
    assert render_markdown(text) == ""


@pytest.mark.parametrize(
    "text",
    [
        "<script>alert(1)</script>",
        '[a](<"onmouseover=x>)',
        "```<img src=x>\n</pre><script>\n```",
        '![<i>]("><i>)',
        "<a href='x'>b</a>",
        "- > # `<b>`\n\n  1) *<u>*",
    ],
)
def test_only_known_elements_come_out(text: str) -> None:
    html = render_markdown(text)
    assert html
    tags = re.findall(r"<(/?)([a-z]+)((?: [a-z]+=\"[^\"<>]*\")*)>", html)
    assert len(tags) == html.count("<")
    assert {name for _, name, _ in tags} <= ELEMENTS
    assert {attrs.split("=")[0].strip() for *_, attrs in tags} <= {"", "class", "value"}


def test_plain_text_is_not_taken_for_markdown() -> None:
    plain = ["Hello,\nwe are sorry.\n\n- one", "5 * 3 * 2", "a_b_c", "#1 of the list", "see [1]"]
    assert not any(map(has_markdown, plain))
    signs = ["# Title", "the **sum**", "[a](http://x)", "```\ncode\n```"]
    assert all(map(has_markdown, signs))
