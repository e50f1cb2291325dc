"""The types that stand beside the arguments of a call."""

from typing import Any

import pytest

from approvals.web.pages.arguments import arguments
from runtime.core.json_schema import problems


def _type(part: Any, value: Any, **schema: Any) -> str:
    whole = {"properties": {"it": part}, "required": ["it"], **schema}
    (only,) = arguments({"it": value}, whole)
    return only.type


@pytest.mark.parametrize(
    ("part", "value", "words"),
    [
        ({"type": "string"}, "x", "string"),
        ({"type": "string", "format": "email"}, "x", "string · email"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, 3, "integer · 1 to 5"),
        ({"type": "integer", "minimum": 1}, 3, "integer · at least 1"),
        ({"enum": ["a", 2]}, "a", "one of a, 2"),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, None, "string or null"),
        ({"type": ["string", "null"]}, None, "string or null"),
        ({}, [1], "array"),
        (True, 1.5, "number"),
    ],
)
def test_a_type_is_put_in_words(part: Any, value: Any, words: str) -> None:
    assert _type(part, value) == words


def test_a_reference_is_followed_once() -> None:
    definitions = {
        "Level": {"type": "integer", "maximum": 5},
        "Loop": {"$ref": "#/$defs/Loop", "anyOf": [{"$ref": "#/$defs/Loop"}]},
    }
    assert _type({"$ref": "#/$defs/Level"}, 3, **{"$defs": definitions}) == "integer · at most 5"
    assert _type({"$ref": "#/$defs/Loop"}, 3, **{"$defs": definitions}) == "integer"


def test_every_argument_is_listed_even_outside_the_schema() -> None:
    schema = {"properties": {"a": {"type": "string"}, "b": {"type": "string", "default": "x"}}}
    shown = [(each.name, each.type, each.given) for each in arguments({"z": 1, "a": "y"}, schema)]
    assert shown == [
        ("a", "string · optional", True),
        ("z", "integer · not in the schema", True),
        ("b", "string · optional", False),
    ]


@pytest.mark.parametrize("schema", [None, True, [], {"properties": []}, {"properties": None}])
def test_a_schema_that_makes_no_sense_hides_nothing(schema: Any) -> None:
    (only,) = arguments({"a": 1}, schema)
    assert (only.name, only.value) == ("a", 1)


def test_arguments_that_are_no_object_are_shown_whole() -> None:
    (only,) = arguments(["a"], {})
    assert (only.value, only.type) == (["a"], "array")


@pytest.mark.parametrize(
    "schema", [{"properties": {"it": {"pattern": r"^\p{L}+$"}}}, {"$ref": "#"}]
)
def test_a_schema_that_python_cannot_check_is_a_problem(schema: dict[str, Any]) -> None:
    """Other libraries have patterns that Python has not; a schema may refer to itself."""
    (only,) = problems(schema, {"it": "x"}, "result")
    assert only.field == "result"
    assert "cannot be checked" in only.detail


@pytest.mark.parametrize("reference", ["http://127.0.0.1:9/schema.json", "#/$defs/Missing"])
def test_a_reference_outside_the_schema_is_not_fetched(
    monkeypatch: pytest.MonkeyPatch, reference: str
) -> None:
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    (only,) = problems({"properties": {"it": {"$ref": reference}}}, {"it": 1}, "result")
    assert (only.field, fetched) == ("result", [])
    assert "cannot be checked" in only.detail
