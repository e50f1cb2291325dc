"""Calls one tool: opens and reads its arguments, runs its function, and returns its outcome."""

import asyncio
import inspect
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

from django.db import transaction
from pydantic import ValidationError
from pydantic_core import to_json

from agents import errors, masked_output, secrets
from agents.credentials import resolve_credentials
from agents.sdk import ToolContext, inputs
from agents.sdk.conditions import describe_exception, message_of, run_code, select_arguments
from agents.sdk.previews import Preview as Written
from agents.sdk.previews import compute_preview_digest, serialize_preview
from agents.sdk.scripts import REPEATED
from agents.sdk.spec import ToolSpec
from runtime.core.documents.codec import make_lost_result
from runtime.core.values.enums import EFFECT_CLASSES, CallPreview, FailureCause
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import copy_value, measure_size, require_json
from runtime.core.values.limits import MAX_RESULT
from runtime.core.values.texts import clean_text
from runtime.ports.agents import CallRejected
from runtime.ports.effects import Outcome, ToolFailure, ToolRequest, ToolResult, Unknown

log = logging.getLogger(__name__)
LIMIT = 16 * 1024  # bytes of JSON


class _NotKept(Exception):
    """The tool ran, but its result cannot be journaled."""


def call_here(tool: ToolSpec, unsealed: Any, request: ToolRequest) -> Outcome:
    """Call a tool in this process, with arguments that were checked and opened before. Never raises."""
    return call(tool, read_arguments(tool, unsealed), unsealed, request)


def open_arguments(tool: ToolSpec, args: Any) -> Any:
    """Open the secrets among the arguments. Raise CallRejected if one cannot be opened."""
    if not tool.secret_args:
        return args
    try:
        return secrets.open_args(tool, args)
    except errors.NotSealed as exc:
        raise CallRejected(str(exc)) from exc


def require_object(args: Any) -> None:
    """Raise CallRejected if the call repeats another one, or its arguments are not JSON that can be stored."""
    if isinstance(args, dict) and REPEATED in args:
        raise CallRejected("this call repeats an earlier call of the same reply")
    if isinstance(args, str):
        no_object = "the arguments are not a JSON object; send the call again with one"
        raise CallRejected(
            clean_text(inputs.find_json_problem(args, root="arguments") or no_object)
        )


def read_arguments(tool: ToolSpec, args: Any) -> dict[str, Any]:
    """Return the arguments as the function's types.

    They are read strictly from JSON, so that the approved values are used: "3" never becomes 3.
    """
    require_object(args)
    try:
        require_json(args, "arguments")
        return tool.arguments.validate_json(to_json(args), strict=True)
    except NotJson as exc:
        raise CallRejected(clean_text(str(exc))) from exc
    except ValidationError as exc:
        problems = [_format_problem(error["loc"], error["msg"]) for error in exc.errors()]
        raise CallRejected(clean_text(secrets.redact(tool, args, "; ".join(problems)))) from None


def call(tool: ToolSpec, arguments: dict[str, Any], unsealed: Any, request: ToolRequest) -> Outcome:
    """Run a tool and return its outcome."""
    context = build_context(request)
    if tool.credentials:
        return _call_with_credentials(tool, arguments, unsealed, context, request)
    outcome = _run_tool(tool, arguments, unsealed, context, request)
    return outcome or ToolFailure(error=f"{tool.name} was refused, and it has no credentials")


def build_context(request: ToolRequest) -> ToolContext:
    """Return the context of an attempt at a call."""
    return ToolContext(
        run=request.run,
        frame=request.frame,
        call=request.call,
        attempt=request.attempt,
        key=request.key,
        deadline=request.deadline,
        requester=request.requester,
        approvers=request.approvers,
        comment=request.comment,
        business_key=request.business_key,
        input=copy_value(request.input),  # the run has the other one
        todo=request.todo,
    )


def preview(
    tool: ToolSpec, arguments: dict[str, Any], unsealed: Any, context: ToolContext
) -> CallPreview:
    """Return the preview of a call, or why there is none. Secret arguments are redacted. Never raises."""

    def redact(text: str) -> str:
        return clean_text(secrets.redact(tool, unsealed, text))

    try:
        refused = find_refusal(tool, arguments, context)
        if refused or tool.preview is None:
            return CallPreview(refused=redact(refused))
        parts = _redact_all(
            _compute_preview(tool, arguments, context), partial(secrets.redact, tool, unsealed)
        )
        size = measure_size(parts)
        if size > LIMIT:
            return CallPreview(missing=f"it is {size} bytes of JSON, at most {LIMIT} are shown")
        return CallPreview(
            shown=parts, material=compute_preview_digest(parts, tool.preview_ignores)
        )
    except (Exception, SystemExit) as exc:
        log.warning("Tool %s: no preview: %s", tool.name, redact(type(exc).__name__))
        return CallPreview(missing=redact(describe_exception(exc)))


def find_refusal(tool: ToolSpec, arguments: dict[str, Any], context: ToolContext) -> str:
    """Return the sentence of a precondition that fails, or an empty text. Raise its errors, or TypeError."""
    if tool.precondition is None:
        return ""
    sentence = _call_for_preview(tool.precondition, tool, arguments, context)
    if sentence is not None and not isinstance(sentence, str):
        raise TypeError(
            f"the precondition of {tool.name} returned {sentence!r}, not a sentence or None"
        )
    return sentence or ""


def _format_problem(location: tuple[int | str, ...], message: str, root: str = "arguments") -> str:
    return ".".join([root, *(str(step) for step in location)]) + f": {message}"


def _make_not_done(exc: errors.NotDone, text: str) -> ToolFailure:
    after = exc.after if isinstance(exc.after, int | float) else None  # a header is a text
    return ToolFailure(
        error=clean_text(text) or type(exc).__name__,
        retryable=True,
        retry_after=None if after is None or not 0 <= after < float("inf") else after,
        cause=exc.cause,
    )


def _mask(forms: Sequence[str], text: str) -> str:
    """Replace credentials. `forms` are all ways to write them."""
    for form in forms:
        text = text.replace(form, masked_output.REDACTED)
    return text


def _call_with_credentials(
    tool: ToolSpec,
    arguments: dict[str, Any],
    unsealed: Any,
    context: ToolContext,
    request: ToolRequest,
) -> Outcome:
    """Run a tool with its credentials. Fetch a new one for a refused credential, once."""
    credentials: dict[str, str] = {}
    for anew in (False, True):
        try:
            credentials = resolve_credentials(tool.credentials, request.deadline, anew=anew)
        except errors.CredentialMissing as exc:
            return ToolFailure(
                error=clean_text(str(exc)), retryable=True, credential=clean_text(str(exc))
            )
        except errors.NotDone as exc:
            return _make_not_done(exc, str(exc))
        if time.monotonic() >= context.began + request.deadline:
            reason = (
                f"{tool.name} was not called with its credentials: getting them took all its time"
            )
            return ToolFailure(error=reason, retryable=True, cause=FailureCause.TIME)
        if anew:  # the first attempt may have changed them
            arguments = read_arguments(tool, unsealed)
        written = {
            form for value in credentials.values() for form in secrets.list_written_forms(value)
        }
        masked_output.remember(written)
        hidden = sorted(written, key=len, reverse=True)
        with_them = replace(context, credentials=credentials)
        outcome = _run_tool(tool, arguments, unsealed, with_them, request, hidden)
        if outcome is not None:
            return outcome
    names = ", ".join(credentials)
    refusal = f"{tool.name} was refused with the credential {names}, also with a new one"
    reason = f"{refusal}: check its rights, or replace it."
    return ToolFailure(error=reason, retryable=True, credential=clean_text(reason))


def _run_tool(
    tool: ToolSpec,
    arguments: dict[str, Any],
    unsealed: Any,
    context: ToolContext,
    request: ToolRequest,
    hidden: Sequence[str] = (),
) -> Outcome | None:
    """Run a tool and return its outcome, None if its credential was refused.

    Secret arguments are redacted in every error, and `hidden`, the forms of its credentials, also in the result.
    """

    def redact(text: str) -> str:
        return clean_text(_mask(hidden, secrets.redact(tool, unsealed, text)))

    try:
        _require_precondition(tool, arguments, request)
        before = [context] if tool.wants_context else []
        # A transactional tool is rolled back if its result cannot be journaled.
        is_transactional = EFFECT_CLASSES[tool.effect].commits_with_entry
        with transaction.atomic() if is_transactional else nullcontext():
            value = run_code(tool.function, *before, **{**tool.copy_defaults(), **arguments})
            if tool.is_async:  # in a loop of its own, and cancelled at the deadline
                value = run_code(asyncio.run, asyncio.wait_for(value, request.deadline))
            result = _build_result(tool, value)
        mask = partial(_mask, hidden)
        return replace(result, value=_redact_all(result.value, mask)) if hidden else result
    except errors.CredentialRefused:
        return None
    except errors.DefinitionChanged as exc:
        return ToolFailure(error=redact(str(exc)), retryable=True, credential=redact(str(exc)))
    except errors.ToolError as exc:
        return ToolFailure(error=redact(message_of(exc)) or type(exc).__name__)
    except _NotKept as exc:
        if EFFECT_CLASSES[tool.effect].happened_when_returned:
            return ToolResult(value=make_lost_result(redact(str(exc))))
        return ToolFailure(error=redact(str(exc)))
    except errors.NotDone as exc:
        return _make_not_done(exc, redact(message_of(exc)))
    except (Exception, SystemExit) as exc:
        error = redact(describe_exception(exc))
        # A traceback quotes the exception, which may hold a secret: then only the redacted text is logged.
        hides = tool.secret_args or tool.secret_result or tool.credentials
        traceback = None if hides else exc
        log.error(
            "Tool %s: the outcome of call %s is unknown: %s",
            tool.name,
            request.key,
            error,
            exc_info=traceback,
        )
        cause = FailureCause.TOOL
        if isinstance(exc, TimeoutError):
            cause = FailureCause.TIME
        elif isinstance(exc, ConnectionError):
            cause = FailureCause.NETWORK
        return Unknown(error=error, cause=cause)


def _require_precondition(tool: ToolSpec, arguments: dict[str, Any], request: ToolRequest) -> None:
    """Raise ToolError or NotDone unless the precondition of the call holds: then the function is not called.

    An earlier attempt at an `idempotent` call may have changed the answer, so it is checked before the first alone.
    """
    if request.attempt > 1 and EFFECT_CLASSES[request.effect].needs_same_key:
        return
    try:
        refused = find_refusal(tool, arguments, build_context(request))
    except (errors.NotDone, errors.ToolError):
        raise
    except Exception as exc:
        raise errors.ToolError(
            f"{tool.name} was not called, because its precondition failed: {describe_exception(exc)}"
        ) from exc
    if refused:
        raise errors.ToolError(f"{tool.name} was not called: {refused}")


def _build_result(tool: ToolSpec, value: Any) -> ToolResult:
    """Return the result. Raise _NotKept if it does not fit the annotation or cannot be journaled."""
    try:
        value = _as_json(tool, value)
    except ValidationError as exc:
        problems = [_format_problem(error["loc"], error["msg"], "result") for error in exc.errors()]
        detail = "" if tool.secret_result else f": {'; '.join(problems)}"
        raise _NotKept(f"{tool.name} ran, but its result is not of its type{detail}") from exc
    except Exception as exc:  # also of the author's types, which write themselves
        text = str(exc) if isinstance(exc, NotJson) else describe_exception(exc)
        detail = "" if tool.secret_result else f": {text}"
        raise _NotKept(f"{tool.name} ran, but its result is not JSON{detail}") from exc
    size = measure_size(value)
    if size > MAX_RESULT:
        limit = f"{size} bytes of JSON, at most {MAX_RESULT} are kept"
        raise _NotKept(f"{tool.name} ran, but its result is {limit}")
    return ToolResult(value=secrets.seal_result(tool, value))


def _as_json(tool: ToolSpec, value: Any) -> Any:
    """Return the value as JSON if it is of the annotated type. Leave JSON as it is, with all its keys.

    Raise ValidationError, NotJson, or what an author's type raises.
    """
    if tool.result is None:
        require_json(value, "result")
        return value
    fitting = tool.result.validate_python(value, strict=True)
    try:
        require_json(value, "result")
    except NotJson:
        value = tool.result.dump_python(fitting, mode="json", by_alias=True, warnings="error")
        require_json(value, "result")
    return value


def _compute_preview(
    tool: ToolSpec, arguments: dict[str, Any], context: ToolContext
) -> dict[str, Any]:
    assert tool.preview is not None  # checked by the caller
    preview = _call_for_preview(tool.preview, tool, arguments, context)
    if not isinstance(preview, Written):
        raise TypeError(
            f"the preview of {tool.name} returned {type(preview).__name__}, not a Preview"
        )
    as_json = serialize_preview(preview)
    require_json(as_json, "preview")
    return as_json


def _call_for_preview(
    function: Callable[..., Any],
    tool: ToolSpec,
    arguments: dict[str, Any],
    context: ToolContext,
) -> Any:
    """Call a function with the arguments that it takes, and with the context if it takes one."""
    named_arguments = select_arguments(function, tool, arguments)
    if "context" in inspect.signature(function).parameters and "context" not in named_arguments:
        named_arguments["context"] = context
    return run_code(function, **named_arguments)


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
