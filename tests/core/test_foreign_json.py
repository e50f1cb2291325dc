"""JSON of other systems: what a journal cannot keep becomes text."""

import pytest

from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import fingerprint, read, read_json, read_object, readable
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


def test_a_submitted_number_keeps_its_digits() -> None:
    numbers = read("[2.0, 1.5, 0.1000000000000000000001, 1e400, 9007199254740993]")
    assert readable(numbers) == [2, 1.5, "0.1000000000000000000001", "1E+400", "9007199254740993"]
    with pytest.raises(NotJson, match="look the same"):
        readable(read(r'{"a\u0000": 1, "a\\0": 2}'))


def test_a_fingerprint_is_of_values_not_of_their_notation() -> None:
    first = fingerprint(read_object(b'{"a": 1.0, "b": [1e1, -0.50]}'))
    assert first == fingerprint(read_object(b' {"b":[10,-0.5],"a":1}'))
    for other in (b'{"b":[10,0.5],"a":1}', b'{"b":[10,-0.5],"a":10}', b'{"b":[10,-0.5],"a":"1"}'):
        assert first != fingerprint(read_object(other))
    for body in (b'{"a": 1, "a": 1}', b'{"a": 1} x', b"[]", b'{"a": {"b": 1, "b": 2}}'):
        with pytest.raises(NotJson):
            read_object(body)
