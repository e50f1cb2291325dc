"""How calls and errors are put in words: plain text on one line, safe to journal."""

import json
from typing import Any

from agents.sdk.spec import ToolSpec
from runtime.core.limits import plain

_as_json = json.JSONEncoder(ensure_ascii=False).encode

MASK = "••••"  # what is shown of a secret


def sentence_of(tool: ToolSpec, args: dict[str, Any]) -> str:
    """The tool's sentence with these arguments, none of them shortened, and none that is secret."""
    words = {
        name: MASK
        if name in tool.secret_args
        else _visible(args[name] if name in args else tool.defaults[name])
        for name in tool.sentence_args
    }
    return tool.sentence.format_map(words)


def describe_exception(exc: BaseException) -> str:
    """Type and message; the message alone often says nothing (`KeyError: 'id'`)."""
    return plain(f"{type(exc).__name__}: {exc}")


def _visible(value: Any) -> str:
    """What would break the line, hide or turn text around is spelled out, so a sentence stays one."""
    text = value if isinstance(value, str) else _as_json(value)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in text)
