"""Hostile and hidden characters are marked on pages, whose scripts make no code or markup of text."""

import re
from typing import get_args

import pytest

from approvals.reads.filters import VERDICTS
from approvals.reads.similar import compared
from approvals.web.pages.overview import VERDICT_SERIES
from config.env.environment import ROOT
from runtime.core.run.continuation import RunStatus
from runtime.reads.filters import TABS
from runtime.reads.labels import MESSAGES, MessageKind
from runtime.web.display import escape_visible, excerpt_visible, parts, plain_visible, unwrapped

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
    (change,) = compared({} if was is None else {"to": was}, {"to": now})
    assert change.spaces == said
    assert "⟦" not in parts(change.now, "ins")


def test_changed_words_are_marked_and_spaces_beside_them_are_plain() -> None:
    (change,) = compared({"to": "ACME Supplies GmbH"}, {"to": "ACNE Supplies  L\u00a0d"})
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
