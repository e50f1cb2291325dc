"""Describes calls and errors in one line of plain text that can be journaled."""

import json
from typing import Any

from agents.masked_output import REDACTED
from agents.sdk.spec import ToolSpec
from runtime.core.values.limits import MAX_SENTENCE_VALUE, plain
from runtime.core.values.texts import write_on_one_line

_as_json = json.JSONEncoder(ensure_ascii=False).encode


def sentence_of(tool: ToolSpec, args: dict[str, Any]) -> str:
    """Fill these arguments into the tool's sentence, long ones cut, and without secrets.

    The sentence is a heading, a row of a list, a mail; an approval shows all arguments next to it.
    """
    words = {
        name: REDACTED
        if name in tool.secret_args
        else _visible(args[name] if name in args else tool.defaults[name])
        for name in tool.sentence_args
    }
    return tool.sentence.format_map(words)


def describe_exception(exc: BaseException) -> str:
    """Return type and message: a message alone often says nothing (`KeyError: 'id'`)."""
    return plain(f"{type(exc).__name__}: {exc}")


def _visible(value: Any) -> str:
    """Write the code point of characters that break a line, are invisible or reverse text."""
    text = value if isinstance(value, str) else _as_json(value)
    return write_on_one_line(
        text if len(text) <= MAX_SENTENCE_VALUE else f"{text[:MAX_SENTENCE_VALUE]}…"
    )
