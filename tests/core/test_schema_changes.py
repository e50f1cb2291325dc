"""Which changes of a tool's schema leave the calls that were made under the earlier one as they are."""

from copy import deepcopy
from typing import Any

import pytest

from runtime.core.values.json_schema import is_compatible

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
