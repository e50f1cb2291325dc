"""Checks what a person changes in a fork: that it may be changed there, and that the new value fits its schema."""

from collections.abc import Callable, Iterable
from typing import Any

from runtime.control import access
from runtime.control.edit import edit
from runtime.control.forks.replies import given_reply
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import Event, ForkChange
from runtime.core.run.forks import change_value, list_changeable, next_reply
from runtime.core.values import json_schema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json, same
from runtime.core.values.limits import MAX_MESSAGE, MAX_REPORTED, size_of
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports import wiring
from runtime.ports.agents import ToolSchemas
from runtime.queries.redaction import redact

FIELD = "change"
VALUE = "change.value"
_FIELDS = frozenset({"kind", "frame", "call", "number", "value"})


def apply(
    now: Continuation, sent: object, by: str, later: Callable[[], Iterable[Event]]
) -> tuple[Continuation, ForkChange]:
    """Return the first state of a fork with this change by a person. Raise InvalidInput naming `change` or its field.

    `later` reads what the original recorded after that state.
    """
    if not isinstance(sent, dict) or not sent.keys() <= _FIELDS or "value" not in sent:
        raise InvalidInput(
            FIELD,
            "must have kind and value, and number (message), frame (reply), or frame and call",
        )
    target = {name: value for name, value in sent.items() if name != "value"}
    matches = [(change, old) for change, old in list_changeable(now) if _names(change) == target]
    if not matches:
        raise InvalidInput(FIELD, "names nothing that can be changed after this entry")
    [(change, old)] = matches
    if change.kind == "arguments" and sealing.held_args(
        now.call(change.frame, change.call).tool, old
    ):
        raise InvalidInput(FIELD, "names arguments that wait for a reviewer")
    if change.kind == "reply":
        frame, recorded = now.frame(change.frame), next_reply(later(), change.frame)
        reply = given_reply(frame, recorded, sent["value"], by, VALUE)
        return change_value(now, change, reply, by), change
    value = _value(now, change, old, sent["value"])
    if same(value, old):
        raise InvalidInput(VALUE, "is unchanged")
    return change_value(now, change, value, by), change


def schemas_of(now: Continuation, change: ForkChange) -> ToolSchemas | None:
    """Return the schemas of the tool of this call, as its agent was last published."""
    frame = now.frame(change.frame)
    tool = frame.find(change.call).tool
    return wiring.catalogue().tool_schemas(frame.agent, tool)


def _names(change: ForkChange) -> dict[str, Any]:
    """Return the fields that name a change."""
    if change.kind == "message":
        return {"kind": change.kind, "number": change.number}
    if change.kind == "reply":
        return {"kind": change.kind, "frame": change.frame}
    return {"kind": change.kind, "frame": change.frame, "call": change.call}


def _value(now: Continuation, change: ForkChange, old: Any, new_value: Any) -> Any:
    if change.kind == "message":
        return access.validate_text(VALUE, new_value, MAX_MESSAGE, required="must not be empty")
    schemas = schemas_of(now, change)
    if change.kind == "result":
        return _result(schemas, old, new_value)
    if schemas is None:
        raise InvalidInput(VALUE, "cannot be checked: no worker has published this tool")
    return _arguments(now, change, schemas, old, new_value)


def _arguments(
    now: Continuation, change: ForkChange, schemas: ToolSchemas, old: Any, new_value: Any
) -> Any:
    tool = now.call(change.frame, change.call).tool
    try:
        edited = edit(
            tool=tool,
            schema=schemas.arguments,
            path=now.path(change.frame, tool),
            effect=schemas.effect,
            args=old,
            new_args=new_value,
        )
    except InvalidInput as exc:
        unchanged = exc.detail.startswith("are unchanged")
        detail = "is unchanged" if unchanged else exc.detail
        raise InvalidInput(exc.field.replace("arguments", VALUE, 1), detail) from exc
    return edited.args


def _result(schemas: ToolSchemas | None, old: Any, new_value: Any) -> Any:
    try:
        require_json(new_value, VALUE)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    size = size_of(new_value)
    if size > MAX_REPORTED:
        raise InvalidInput(VALUE, f"is {size} bytes of JSON, at most {MAX_REPORTED} are allowed")
    if sealing.looks_sealed(new_value):
        raise InvalidInput(VALUE, "must not hold a sealed secret")
    schema = schemas.result if schemas is not None else None
    for problem in json_schema.problems(schema or {}, new_value, VALUE):
        raise InvalidInput(problem.field, problem.detail)
    return _with_secrets(old, new_value, VALUE)


def _with_secrets(old: Any, new_value: Any, field: str) -> Any:
    """Return the value with the secrets of the old one where it has their placeholders. Raises InvalidInput."""
    match new_value:
        case dict():
            now = old if isinstance(old, dict) else {}
            return {
                name: _with_secrets(now.get(name), element, f"{field}.{name}")
                for name, element in new_value.items()
            }
        case list():
            now = dict(enumerate(old)) if isinstance(old, list) else {}
            return [
                _with_secrets(now.get(at), element, f"{field}.{at}")
                for at, element in enumerate(new_value)
            ]
        case str() if sealing.REDACTED in new_value:
            if new_value != redact(old):
                raise InvalidInput(field, f"must not hold {sealing.REDACTED}: no secret is there")
            return old
        case _:
            return new_value
