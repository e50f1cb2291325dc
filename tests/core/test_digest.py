"""Canonical JSON, what counts as JSON, and the action digest."""

import json
from typing import Any

import pytest
import rfc8785
from hypothesis import example, given
from hypothesis import strategies as st

from runtime.core.values.enums import EffectClass
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import (
    ENCLOSED_DEPTH,
    copy_value,
    encode_canonical,
    hash_action,
    hash_fields,
    hash_value,
    make_readable,
    read,
    read_json,
    read_object,
    require_json,
)
from runtime.core.values.limits import JSON_DEPTH

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"))
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(1 - 2**53, 2**53 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


def parts(value: Any) -> list[Any]:
    """The value, with all lists and objects in it."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *[part for item in inner for part in parts(item)]]


def nested(depth: int, key: str | None = None) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {key: value} if key else [value]
    return value


def test_the_action_digest_keeps_its_value() -> None:
    digest = hash_action(
        tool="pay",
        schema="sha256:s",
        args={"to": "ada", "amount": 3},
        path=("outer", "pay"),
        effect=EffectClass.WRITE,
    )
    assert digest == "sha256:6765ef32d9693f5400610e26dd01aa9862e51ce02aa040c30d4b0efbc1ef2127"


@given(value=JSON)
@example(value={"\U00010000": 1, "\ue000": 2, "a": '\x7f\u2028\x1f"\\/'})
@example(value=[1.0, -0.0, 1e21, 1e-7])
@example(value={"b": True, "a": {}, "c": [], "": None})
@example(value=[nested(JSON_DEPTH - 1), nested(JSON_DEPTH - 1, "a")])
@example(value=[2**53 - 1, 1 - 2**53])
def test_canonical_json_is_that_of_rfc_8785(value: Any) -> None:
    require_json(value)
    assert encode_canonical(value) == rfc8785.dumps(value)


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, float("inf")]}, "input.a[1]"),
        (2**53, "input"),
        (-(2**53), "input"),
        ("a\x00b", "input"),
        ({"a": "\ud800"}, "input.a"),
        ({1: 2}, "input"),
        ({"a": {1, 2}}, "input.a"),
        ({"a": {"b\x00": 1}}, "input.a"),
        ({"\udfff": 1}, "input"),
        (nested(JSON_DEPTH + 1), "input" + "[0]" * (JSON_DEPTH + 1)),
        (nested(JSON_DEPTH + 1, "a"), "input" + ".a" * (JSON_DEPTH + 1)),
    ],
)
def test_a_value_that_is_not_json_is_refused_with_its_place(value: Any, where: str) -> None:
    with pytest.raises(NotJson) as raised:
        require_json(value, "input")
    assert raised.value.field == where


def test_a_value_that_is_not_json_has_no_digest() -> None:
    for value in (float("nan"), 2**53, "\x00", nested(ENCLOSED_DEPTH + 1)):
        with pytest.raises(NotJson) as raised:
            hash_value(value)
        assert raised.value.field.partition("[")[0] == "value"


@given(value=JSON)
@example(value=[1.0, -0.0, 1e21, 1e-7, 5e-324, 1.7976931348623157e308])
@example(value=[nested(JSON_DEPTH - 1), nested(JSON_DEPTH - 1, "a")])
@example(value=[2**53 - 1, 1 - 2**53])
def test_a_copy_is_the_same_json_and_shares_no_list_or_object(value: Any) -> None:
    copy = copy_value(value)
    assert json.dumps(copy) == json.dumps(value)
    for old, new in zip(parts(value), parts(copy), strict=True):
        assert type(new) is type(old)
        assert new is not old or not isinstance(old, dict | list)


# Values from elsewhere


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
    assert make_readable(numbers) == [
        2,
        1.5,
        "0.1000000000000000000001",
        "1E+400",
        "9007199254740993",
    ]
    with pytest.raises(NotJson, match="look the same"):
        make_readable(read(r'{"a\u0000": 1, "a\\0": 2}'))


def test_a_fingerprint_is_of_values_not_of_their_notation() -> None:
    first = hash_fields(read_object(b'{"a": 1.0, "b": [1e1, -0.50]}'))
    assert first == hash_fields(read_object(b' {"b":[10,-0.5],"a":1}'))
    for other in (b'{"b":[10,0.5],"a":1}', b'{"b":[10,-0.5],"a":10}', b'{"b":[10,-0.5],"a":"1"}'):
        assert first != hash_fields(read_object(other))
    for body in (b'{"a": 1, "a": 1}', b'{"a": 1} x', b"[]", b'{"a": {"b": 1, "b": 2}}'):
        with pytest.raises(NotJson):
            read_object(body)
