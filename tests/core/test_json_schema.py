"""The words for the types of a schema, and its problems with a value."""

import json
from copy import deepcopy
from itertools import permutations, product
from typing import Any

import pytest

from runtime.core.values import json_schema
from runtime.core.values.json_schema import (
    MAX_MESSAGE,
    _plain_check,
    describe,
    is_compatible,
    list_problems,
    may_have,
    write_only,
)

TICKET = {"pattern": "^(HR|IT)-[0-9]+$"}
DEFINITIONS = {
    "Level": {"type": "integer", "maximum": 5},
    "Loop": {"$ref": "#/$defs/Loop", "anyOf": [{"$ref": "#/$defs/Loop"}]},
}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ({"type": "string", "format": "email"}, "string · email"),
        ({"type": "integer", "minimum": 1, "maximum": 5}, "integer · 1 to 5"),
        ({"type": "integer", "minimum": 1}, "integer · at least 1"),
        ({"enum": ["a", ["ä"]]}, 'one of a, ["ä"]'),
        ({"const": "a"}, "always a"),
        ({"anyOf": [{}, {"type": "string"}, {"type": "null"}]}, "string or null"),
        ({"type": ["string", "null"]}, "string or null"),
        ({"$ref": "#/$defs/Level"}, "integer · at most 5"),
        ({"$ref": "#/$defs/Loop"}, ""),
    ],
)
def test_a_type_is_put_in_words(part: Any, words: str) -> None:
    assert describe(part, {"$defs": DEFINITIONS}) == words


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"it": {"pattern": "(?=[)"}}},  # no pattern
        {"$ref": "#"},
        {"properties": {"it": {"$ref": "http://127.0.0.1:9/schema.json"}}},
        {"properties": {"it": {"$ref": "#/$defs/Missing"}}},
    ],
)
def test_a_schema_that_cannot_be_checked_is_a_problem(
    monkeypatch: pytest.MonkeyPatch, schema: dict[str, Any]
) -> None:
    fetched: list[object] = []
    monkeypatch.setattr("urllib.request.urlopen", fetched.append)
    (only,) = list_problems(schema, {"it": "x"}, "result")
    assert (only.field, fetched) == ("result", [])
    assert "cannot be checked" in only.detail


@pytest.mark.parametrize(
    ("value", "field", "said"),
    [
        ({"level": 6}, "in.it.level", "must be at most 5"),
        ({"level": "x"}, "in.it.level", "must be of type integer"),
        ({}, "in.it.level", "is missing: it must be integer · at most 5"),
        ("", "in.it", "must have at least 1 characters"),
        ([], "in.it", "must be object or string · at least 1 characters or null"),
    ],
)
@pytest.mark.parametrize("either", ["anyOf", "oneOf"])
def test_the_one_choice_of_the_type_says_what_is_wrong(
    either: str, value: Any, field: str, said: str
) -> None:
    whole = {
        "type": "object",
        "properties": {"level": {"$ref": "#/$defs/Level"}},
        "required": ["level"],
    }
    text = {"type": "string", "minLength": 1}
    one = {either: [{"$ref": "#/$defs/Whole"}, text, {"type": "null"}]}
    schema = {"properties": {"it": one}, "$defs": {**DEFINITIONS, "Whole": whole}}
    (only,) = list_problems(json.dumps(schema), {"it": value}, "in")
    assert (only.field, only.detail) == (field, said)
    assert list_problems(schema, {"it": None}, "in") == []


def test_fields_are_named_the_least_deep_first() -> None:
    inner = {"properties": {"b": {"type": "integer"}, "c": {"pattern": "^c$"}}}
    schema = {"properties": {"a": inner}, "required": ["a", "z"], "additionalProperties": False}
    found = list_problems(schema, {"a": {"b": "x", "c": 1}, "y": 1}, "in")
    assert [one.field for one in found] == ["in.z", "in.y", "in.a.b"]
    assert write_only({"properties": {"a": True, "b": {"writeOnly": True}, "c": {}}}) == {"b"}


@pytest.mark.parametrize("choice", ["anyOf", "oneOf"])
def test_types_that_refer_to_each_other_are_checked_once_a_depth(choice: str) -> None:
    """Twice at each depth would be 2^60 checks."""
    nodes = {
        name: {"type": "object", "properties": {"next": {choice: [_ref("a"), _ref("b"), leaf]}}}
        for name, leaf in (("a", {"const": 1}), ("b", {"const": 2}))
    }
    value: Any = 3
    for _ in range(60):
        value = {"next": value}
    (problem,) = list_problems({"$defs": nodes, **_ref("a")}, value, "arguments")
    assert problem.field == "arguments.next"


def test_a_plain_check_refuses_every_value_with_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_schema, "_plain_check", lambda _: lambda _: False)
    numbers = [{"type": "integer", "minimum": 1}, {"type": "integer", "maximum": 1.5}]
    texts = [{"type": "string", "minLength": 1, "title": "A"}, {"type": "string", "maxLength": 1}]
    others = [{}, {"type": "null"}, {"type": "boolean"}, {"type": "number"}, {"enum": [1]}]
    odd = [{"type": ["string"]}, {"type": "null", "not": {}}, {"type": "string", "pattern": "b"}]
    rules = [*numbers, *texts, *others, *odd, {"type": "array", "items": {}, "minItems": 1}]
    rules += [{"type": "array", "items": rule} for rule in rules]
    rules += [{"anyOf": pair} for pair in permutations(rules[:6], 2)]
    closed = {"type": "object", "additionalProperties": False}
    limits: list[dict[str, Any]] = [
        {},
        {"required": ["a"]},
        {"required": ["z"]},
        {"minProperties": 1},
    ]
    schemas: list[Any] = [
        {**closed, "properties": {"a": it}, **some} for it in rules for some in limits
    ]
    values: list[Any] = [None, True, 0, 1, 1.0, "", "a", "ab", [], ["a"], [1, None], {}]
    values += [{"a": value} for value in values] + [{"b": 1}]
    passed = 0
    for schema, value in product([*rules, *schemas, {"type": "object"}], values):
        if _plain_check(json.dumps(schema))(value):
            assert list_problems(schema, value, "in") == [], (schema, value)
            passed += 1
    assert passed > 200


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/$defs/{name}"}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (
            "^[a-zA-Z0-9_][a-zA-Z0-9_.@+-]*$",
            "must begin with one of these characters: a-z A-Z 0-9 _; after it, only these: a-z A-Z 0-9 _ . @ + -",
        ),
        ("^[A-Z ]+$", "must have only these characters: A-Z space"),
        (r"^[a-z\-]+$", "must have only these characters: a-z -"),
        (r"^[^\r\n]+$", r"must match ^[^\r\n]+$"),
        (r"^[\w]+$", r"must match ^[\w]+$"),
        (r"^[a\\]+$", r"must have only these characters: a \\"),
        ("^(a|b)$", "must match ^(a|b)$"),
    ],
)
def test_a_pattern_of_characters_is_said_in_words(pattern: str, said: str) -> None:
    (only,) = list_problems({"properties": {"it": {"pattern": pattern}}}, {"it": "\u00df\n"}, "in")
    assert only.detail == said


@pytest.mark.parametrize(
    ("pattern", "text", "fits"),
    [
        (r"^\p{L}+$", "Žižka", True),  # pydantic takes it, Python does not
        (r"^\p{L}+$", "7", False),
        ("^a$", "a\n", False),
        ("^(?=a)ab$", "ab", True),  # Python takes it, pydantic does not
        ("^(?=a)ab$", "ab\n", False),
        (r"^[a-z]+\d?$", "ab1", True),
        ("^(a+)+$", "a" * 5_000 + "!", False),  # and soon
    ],
)
def test_a_pattern_is_checked_as_pydantic_does_if_it_can(
    pattern: str, text: str, fits: bool
) -> None:
    schema = {"properties": {"it": {"pattern": pattern}}}
    assert (not list_problems(schema, {"it": text}, "in")) == fits


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (TICKET | {"format": "email", "examples": ["a@b.c"]}, "must be a valid email"),
        (TICKET | {"examples": ["HR-77"], "description": "T."}, "must have the form of HR-77"),
        (TICKET | {"examples": [], "description": "T."}, "must fit its description: T."),
        (TICKET | {"examples": "HR-77", "description": "T."}, "must fit its description: T."),
        (TICKET | {"errorMessage": "must name a ticket, as HR-77"}, "must name a ticket, as HR-77"),
        (TICKET | {"errorMessage": 7}, "must match ^(HR|IT)-[0-9]+$"),
        ({"const": 1, "errorMessage": "x" * (MAX_MESSAGE + 1)}, "x" * MAX_MESSAGE),
        ({"anyOf": [{"minLength": 2}, {"type": "null"}], "errorMessage": "is short"}, "is short"),
        ({"anyOf": [{"not": {}}, {"not": {}}]}, "fits no choice"),
        ({"oneOf": [{"type": "string"}, True]}, "fits more than one choice"),
    ],
)
def test_what_no_words_describe_is_said_by_the_author(rule: dict[str, Any], said: str) -> None:
    (only,) = list_problems({"properties": {"it": rule}}, {"it": "x"}, "in")
    assert only.detail == said


@pytest.mark.parametrize("value", [True, 3.0])
def test_an_integer_is_one_of_python(value: object) -> None:
    (only,) = list_problems({"properties": {"it": {"type": "integer"}}}, {"it": value}, "in")
    assert only.detail == "must be of type integer"


NESTED: dict[str, Any] = {
    "$defs": {"Person": {"type": "object", "properties": {"level": {"type": "integer"}}}},
    "properties": {
        "person": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "null"}]},
        "labels": {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        "either": {"anyOf": [{"$ref": "#/$defs/Person"}, {"type": "string"}]},
    },
}


@pytest.mark.parametrize(
    ("path", "may"),
    [
        ("person", True),
        ("persno", False),
        ("person.level", True),
        ("person.levle", False),
        ("labels.any", True),
        ("either.any", True),
    ],
)
def test_a_path_is_looked_up_in_the_schema(path: str, may: bool) -> None:
    assert may_have(NESTED, path.split(".")) is may


# Changes of a schema


BEFORE: dict[str, Any] = {
    "type": "object",
    "description": "Pay.",
    "additionalProperties": False,
    "required": ["to"],
    "properties": {
        "to": {"type": "string", "title": "To", "maxLength": 50},
        "title": {"type": "string", "default": "Mr"},
        "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
        "when": {"anyOf": [{"type": "object"}, {"type": "null"}], "default": {"title": "now"}},
    },
    "$defs": {
        "Line": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"euros": {"type": "integer", "description": "Of this line."}},
        }
    },
}
NOTE = {"type": "string", "default": ""}
OF_LINE = ("$defs", "Line", "properties")


def _changed(*path: str, to: Any) -> dict[str, Any]:
    after = deepcopy(BEFORE)
    at = after
    for name in path[:-1]:
        at = at.setdefault(name, {})
    at[path[-1]] = to
    return after


COMPATIBLE = {
    "nothing": BEFORE,
    "a description": _changed("description", to="Pay money."),
    "a description of an argument": _changed(*OF_LINE, "euros", "description", to="Gross."),
    "a description of items": _changed("properties", "lines", "items", "description", to="Each."),
    "a description of a choice": _changed(
        "properties", "when", "anyOf", to=[{"type": "object", "title": "When"}, {"type": "null"}]
    ),
    "examples": _changed("properties", "to", "examples", to=["ada"]),
    "an optional argument": _changed("properties", "note", to=NOTE),
    "a definition": _changed("$defs", "Place", to={"type": "string"}),
}
ASKING = {
    "a required argument": {**_changed("properties", "note", to=NOTE), "required": ["to", "note"]},
    "an argument is required": _changed("required", to=["to", "title"]),
    "an argument is optional": _changed("required", to=[]),
    "a wider limit": _changed("properties", "to", "maxLength", to=90),
    "a narrower limit": _changed("properties", "to", "maxLength", to=9),
    "a type": _changed("properties", "to", "type", to="integer"),
    "a default": _changed("properties", "title", "default", to="Ms"),
    "a title in a default": _changed("properties", "when", "default", "title", to="later"),
    "a default of another type": _changed("properties", "title", "default", to=["Mr"]),
    "an argument named title is gone": _changed("properties", to={"to": {"type": "string"}}),
    "an argument inside of an object": _changed(*OF_LINE, "cents", to=NOTE),
    "other names are taken": _changed("additionalProperties", to=True),
    "a definition is gone": _changed("$defs", to={}),
    "no schema": None,
}


@pytest.mark.parametrize("after", COMPATIBLE.values(), ids=COMPATIBLE)
def test_words_and_optional_arguments_change_no_call(after: Any) -> None:
    assert is_compatible(BEFORE, after)


@pytest.mark.parametrize("after", ASKING.values(), ids=ASKING)
def test_any_other_change_may_change_a_call(after: Any) -> None:
    assert not is_compatible(BEFORE, after)


def test_a_name_that_was_taken_before_is_not_new() -> None:
    free = {"type": "object", "properties": {"to": NOTE}}
    assert is_compatible(free, {**free, "description": "Pay."})
    assert not is_compatible(free, {**free, "properties": {"to": NOTE, "note": NOTE}})
    assert not is_compatible({"const": 1}, {"const": True})
    assert not is_compatible(None, free)
