"""Previews one call in the worker: checks the precondition of its tool, and computes its consequences."""

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from agents import secrets
from agents.sdk import ToolContext
from agents.sdk.conditions import select_arguments
from agents.sdk.previews import Preview as Written
from agents.sdk.previews import material, serialize_preview
from agents.sdk.sentences import describe_exception
from agents.sdk.spec import ToolSpec
from runtime.core.values.enums import CallPreview
from runtime.core.values.json_values import require_json
from runtime.core.values.limits import plain, size_of

log = logging.getLogger(__name__)

LIMIT = 16 * 1024  # bytes of JSON


def preview(
    tool: ToolSpec, arguments: dict[str, Any], unsealed: Any, context: ToolContext
) -> CallPreview:
    """Return the preview of a call, or why there is none. Secret arguments are redacted. Never raises."""

    def redact(text: str) -> str:
        return plain(secrets.redact(tool, unsealed, text))

    try:
        refused = refusal(tool, arguments, context)
        if refused or tool.preview is None:
            return CallPreview(refused=redact(refused))
        parts = _redact_all(
            _compute_preview(tool, arguments, context), partial(secrets.redact, tool, unsealed)
        )
        size = size_of(parts)
        if size > LIMIT:
            return CallPreview(missing=f"it is {size} bytes of JSON, at most {LIMIT} are shown")
        return CallPreview(shown=parts, material=material(parts, tool.preview_ignores))
    except (Exception, SystemExit) as exc:
        log.warning("Tool %s: no preview: %s", tool.name, redact(type(exc).__name__))
        return CallPreview(missing=redact(describe_exception(exc)))


def refusal(tool: ToolSpec, arguments: dict[str, Any], context: ToolContext) -> str:
    """Return the sentence of a precondition that fails, or an empty text. Raise its errors, or TypeError."""
    if tool.precondition is None:
        return ""
    sentence = _call_function(tool.precondition, tool, arguments, context)
    if sentence is not None and not isinstance(sentence, str):
        raise TypeError(
            f"the precondition of {tool.name} returned {sentence!r}, not a sentence or None"
        )
    return sentence or ""


def _compute_preview(
    tool: ToolSpec, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any]:
    assert tool.preview is not None  # checked by the caller
    preview = _call_function(tool.preview, tool, arguments, context)
    if not isinstance(preview, Written):
        raise TypeError(
            f"the preview of {tool.name} returned {type(preview).__name__}, not a Preview"
        )
    as_json = serialize_preview(preview)
    require_json(as_json, "preview")
    return as_json


def _call_function(
    function: Callable[..., Any],
    tool: ToolSpec,
    arguments: dict[str, Any],
    context: ToolContext,
) -> Any:
    """Call a function with the arguments that it takes, and with the context if it takes one."""
    named_arguments = select_arguments(function, {**tool.defaults, **arguments})
    if "context" in inspect.signature(function).parameters and "context" not in named_arguments:
        named_arguments["context"] = context
    return function(**named_arguments)


def _redact_all(value: Any, redact: Callable[[str], str]) -> Any:
    """Return the value without secrets, in texts, names and numbers."""
    match value:
        case str():
            return redact(value)
        case dict():
            return {redact(name): _redact_all(item, redact) for name, item in value.items()}
        case list():
            return [_redact_all(item, redact) for item in value]
        case bool() | None:
            return value
        case _:
            text = redact(str(value))
            return value if text == str(value) else text
