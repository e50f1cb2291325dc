"""A value reads in words, and never like another value."""

import itertools
import json
from typing import Any

import pytest
from django.template.loader import render_to_string
from django.utils.html import strip_tags

from runtime.web.scalars import MAX_NODES, tree

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
