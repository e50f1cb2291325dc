"""Reads the `{name}` in sentences, schedules and prompts, and fills them in. Double braces stand for braces."""

import json
from collections.abc import Mapping
from string import Formatter
from typing import Any


def placeholders(text: str) -> set[str]:
    """Return the names in a text. Raise ValueError unless each is a bare `{name}`."""
    names = set()
    for _, name, spec, conversion in Formatter().parse(text):
        if name is None:
            continue
        if spec or conversion or not name.isidentifier():
            raise ValueError(f"{{{name}}} is not the bare name of an argument")
        names.add(name)
    return names


def filled(text: str, values: Mapping[str, Any]) -> str:
    """Return the text with its names replaced: a text as it is, another value as JSON. Raise KeyError for a name."""
    parts = []
    for before, name, _, _ in Formatter().parse(text):
        parts.append(before)
        if name is not None:
            value = values[name]
            parts.append(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return "".join(parts)
