"""Previews one call in the worker: checks the precondition of its tool, and computes its consequences."""

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from agents import secrets
from agents.sdk import ToolContext
from agents.sdk.conditions import chosen
from agents.sdk.previews import Preview as Written
from agents.sdk.previews import material, shown
from agents.sdk.sentences import describe_exception
from agents.sdk.spec import ToolSpec
from runtime.core.digest import require_json
from runtime.core.enums import Preview
from runtime.core.limits import plain, size_of

log = logging.getLogger(__name__)

LIMIT = 16 * 1024  # bytes of JSON


def preview(
    tool: ToolSpec, arguments: dict[str, Any], opened: Any, context: ToolContext
) -> Preview:
    """Return the preview of a call, or why there is none. Secret arguments are redacted. Never raises."""

    def told(text: str) -> str:
        return plain(secrets.redact(tool, opened, text))

    try:
        refused = refusal(tool, arguments, context)
        if refused or tool.preview is None:
            return Preview(refused=told(refused))
        found = _redacted(_shown(tool, arguments, context), partial(secrets.redact, tool, opened))
        size = size_of(found)
        if size > LIMIT:
            return Preview(missing=f"it is {size} bytes of JSON, at most {LIMIT} are shown")
        return Preview(shown=found, material=material(found, tool.preview_ignores))
    except (Exception, SystemExit) as exc:
        log.warning("Tool %s: no preview: %s", tool.name, told(type(exc).__name__))
        return Preview(missing=told(describe_exception(exc)))


def refusal(tool: ToolSpec, arguments: dict[str, Any], context: ToolContext) -> str:
    """Return the sentence of a precondition that does not hold, empty if it holds. Raise its errors, or TypeError."""
    if tool.precondition is None:
        return ""
    found = _called(tool.precondition, tool, arguments, context)
    if found is not None and not isinstance(found, str):
        raise TypeError(
            f"the precondition of {tool.name} returned {found!r}, not a sentence or None"
        )
    return found or ""


def _shown(tool: ToolSpec, arguments: dict[str, Any], context: ToolContext) -> dict[str, Any]:
    assert tool.preview is not None  # its caller has looked
    found = _called(tool.preview, tool, arguments, context)
    if not isinstance(found, Written):
        raise TypeError(
            f"the preview of {tool.name} returned {type(found).__name__}, not a Preview"
        )
    as_json = shown(found)
    require_json(as_json, "preview")
    return as_json


def _called(
    function: Callable[..., Any],
    tool: ToolSpec,
    arguments: dict[str, Any],
    context: ToolContext,
) -> Any:
    """Call a function with the arguments that it names, and with the context if it names that."""
    given = chosen(function, {**tool.defaults, **arguments})
    if "context" in inspect.signature(function).parameters and "context" not in given:
        given["context"] = context
    return function(**given)


def _redacted(value: Any, told: Callable[[str], str]) -> Any:
    """Return the value without secrets, in texts, names and numbers."""
    match value:
        case str():
            return told(value)
        case dict():
            return {told(name): _redacted(item, told) for name, item in value.items()}
        case list():
            return [_redacted(item, told) for item in value]
        case bool() | None:
            return value
        case _:
            text = told(str(value))
            return value if text == str(value) else text
