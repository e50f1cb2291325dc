"""JSON of other systems: what a journal cannot keep becomes text."""

import pytest

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import read_json
from runtime.core.values.limits import JSON_DEPTH


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[2868860079149422351, -9007199254740992]", ["2868860079149422351", "-9007199254740992"]),
        ("[9007199254740991, -9007199254740991]", [9007199254740991, -9007199254740991]),
        (f"[{'9' * 5000}]", ["9" * 5000]),
        ("[1e400, -1e400, 1.5, 1e3]", ["1e400", "-1e400", 1.5, 1000.0]),
        (r'{"\u0000": "a\u0000b"}', {"\\0": "a\\0b"}),
        (r'["half \ud83d", "\ud83d\ude00"]', ["half \\ud83d", "\U0001f600"]),
        (b"[true, null]", [True, None]),
    ],
)
def test_a_value_that_no_journal_keeps_becomes_text(text: str | bytes, value: object) -> None:
    assert read_json(text, "body") == value


def test_what_is_not_json_or_too_deep_is_refused() -> None:
    deep = "[" * (JSON_DEPTH + 2) + "]" * (JSON_DEPTH + 2)
    for text in ('{"a": NaN}', deep):
        with pytest.raises(NotJson):
            read_json(text, "body")
