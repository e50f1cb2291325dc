"""Canonical JSON, what counts as JSON, and the action digest."""

from typing import Any

import pytest

from runtime.core.decisions import EffectClass
from runtime.core.digest import ENCLOSED_DEPTH, action_digest, require_json, sha256_of
from runtime.core.errors import NotJson
from runtime.core.limits import JSON_DEPTH

ACTION: dict[str, Any] = {
    "tool": "set_privileges",
    "schema": "sha256:s",
    "args": {"username": "new.hire", "level": 3},
    "path": ("hr_onboarding", "account_agent", "set_privileges"),
    "effect": EffectClass.IDEMPOTENT,
}


def test_the_digest_does_not_depend_on_the_order_of_keys() -> None:
    assert sha256_of({"a": 1, "b": [2.0, "é"]}) == sha256_of({"b": [2, "é"], "a": 1.0})


@pytest.mark.parametrize(
    "change",
    [
        {"tool": "set_privilege"},
        {"schema": "sha256:t"},
        {"args": {"username": "new.hire", "level": 4}},
        {"args": {"username": "new.hire", "level": "3"}},
        {"args": {"username": "new.hire", "level": 3, "more": None}},
        {"path": ("hr_onboarding", "set_privileges")},
        {"effect": EffectClass.WRITE},
    ],
)
def test_the_action_digest_changes_with_every_part_of_the_action(change: dict[str, Any]) -> None:
    assert action_digest(**{**ACTION, **change}) != action_digest(**ACTION)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def nested_objects(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


@pytest.mark.parametrize(
    ("value", "where"),
    [
        (float("nan"), "input"),
        ({"a": [1, float("inf")]}, "input.a[1]"),
        (2**53, "input"),
        ("a\x00b", "input"),
        ({"a": "\ud800"}, "input.a"),
        ({1: 2}, "input"),
        ({"a": {1, 2}}, "input.a"),
        (b"bytes", "input"),
        (-(2**53), "input"),
        ({"a": {"b\x00": 1}}, "input.a"),
        ({"\udfff": 1}, "input"),
        (nested(JSON_DEPTH + 1), "input" + "[0]" * (JSON_DEPTH + 1)),
        (nested_objects(JSON_DEPTH + 1), "input" + ".a" * (JSON_DEPTH + 1)),
    ],
)
def test_what_is_not_json_is_refused_by_its_place(value: Any, where: str) -> None:
    with pytest.raises(NotJson) as raised:
        require_json(value, "input")
    assert raised.value.where == where


def test_what_is_not_json_has_no_digest() -> None:
    for value in (float("nan"), 2**53, "\x00", nested(ENCLOSED_DEPTH + 1)):
        with pytest.raises(NotJson) as raised:
            sha256_of(value)
        assert raised.value.where.partition("[")[0] == "value"


def test_the_deepest_json_and_the_largest_integers_allowed_pass() -> None:
    require_json(nested(JSON_DEPTH))
    require_json(nested_objects(JSON_DEPTH))
    require_json([2**53 - 1, 1 - 2**53])
