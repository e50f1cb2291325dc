"""Checks the reply with which a person replaces the next one of a frame's model in a fork.

It has a text, calls of the agent's tools and sub-agents, or both. A secret of the recorded reply stays where its
placeholder is.
"""

import json
from collections.abc import Mapping
from typing import Any

from runtime.control.edit import check_schema
from runtime.core.run.continuation import Frame, GivenReply
from runtime.core.run.events import ModelReplied, Proposal
from runtime.core.run.forks import text_of_reply
from runtime.core.values import json_schema
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import require_json, same
from runtime.core.values.limits import MAX_CALLS, MAX_REPORTED, MAX_TOOL, size_of
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports import wiring
from runtime.queries.redaction import redact

_FIELDS = frozenset({"text", "calls"})
_CALL = frozenset({"tool", "arguments"})


def given_reply(
    frame: Frame, recorded: ModelReplied | None, value: object, by: str, field: str
) -> GivenReply:
    """Return the reply in `value`. `recorded` is the one that it replaces, if any.

    Raise InvalidInput naming `field`, or a field in it.
    """
    if wiring.catalogue().works_on_items(frame.agent):
        raise InvalidInput(field, f"cannot be given: code decides the calls of {frame.agent}")
    if not isinstance(value, dict) or not value.keys() <= _FIELDS:
        raise InvalidInput(field, "must be a JSON object with text, calls or both")
    try:
        require_json(value, field)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    if (size := size_of(value)) > MAX_REPORTED:
        raise InvalidInput(field, f"is {size} bytes of JSON, at most {MAX_REPORTED} are allowed")
    text = _text(recorded, value.get("text", ""), f"{field}.text")
    calls = _calls(frame, recorded, value.get("calls", []), f"{field}.calls")
    if not text.strip() and not calls:
        raise InvalidInput(field, "must have a text or a call")
    if not calls and redact(text) != text:  # the worker would open it, and the requester read it
        raise InvalidInput(f"{field}.text", "is hidden, so it cannot be the answer")
    if not calls:
        _check_answer(frame, text, f"{field}.text")
    if recorded is not None and same(
        _parts(text, calls), _parts(text_of_reply(recorded), recorded.calls)
    ):
        raise InvalidInput(field, "is unchanged")
    return GivenReply(by=by, text=text, calls=calls)


def _parts(text: str, calls: tuple[Proposal, ...]) -> list[Any]:
    return [text, *([call.tool, call.args] for call in calls)]


def _text(recorded: ModelReplied | None, text: object, field: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(field, "must be a text")
    if redact(text) != text:
        raise InvalidInput(field, "must not hold a sealed secret")
    if sealing.REDACTED not in text:
        return text
    old = text_of_reply(recorded) if recorded else ""
    if text != redact(old):
        raise InvalidInput(field, f"must not hold {sealing.REDACTED}: no secret is there")
    return old


def _check_answer(frame: Frame, text: str, field: str) -> None:
    """Raise InvalidInput unless the text is the typed answer of an agent that has one."""
    schema = wiring.catalogue().answer_schema(frame.agent)
    if schema is None:
        return
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as exc:
        reason = "must be the answer as JSON, because the agent's answer is typed"
        raise InvalidInput(field, reason) from exc
    for problem in json_schema.problems(schema, answer, field):
        raise InvalidInput(problem.field, problem.detail)


def _calls(
    frame: Frame, recorded: ModelReplied | None, calls: object, field: str
) -> tuple[Proposal, ...]:
    if not isinstance(calls, list):
        raise InvalidInput(field, "must be a list")
    if len(calls) > MAX_CALLS:
        raise InvalidInput(field, f"has {len(calls)} calls, at most {MAX_CALLS} are allowed")
    old = recorded.calls if recorded else ()
    return tuple(
        _call(frame, old[index] if index < len(old) else None, call, f"{field}.{index}")
        for index, call in enumerate(calls)
    )


def _call(frame: Frame, recorded: Proposal | None, call: object, field: str) -> Proposal:
    """Return one call. `recorded` is the call that it replaces, if any."""
    if not isinstance(call, dict) or call.keys() != _CALL:
        raise InvalidInput(field, "must have tool and arguments")
    tool = call["tool"]
    if not isinstance(tool, str) or not tool or len(tool) > MAX_TOOL:
        raise InvalidInput(f"{field}.tool", "must be the name of a tool")
    schema = wiring.catalogue().call_schema(frame.agent, tool)
    if schema is None:
        raise InvalidInput(f"{field}.tool", f"{frame.agent} has no such tool or sub-agent")
    old = recorded.args if recorded is not None and recorded.tool == tool else {}
    args = _arguments(tool, schema, old, call["arguments"], f"{field}.arguments")
    return Proposal(tool=tool, args=args)


def _arguments(
    tool: str, schema: Mapping[str, Any], old: Any, arguments: object, field: str
) -> dict[str, Any]:
    """Return the arguments with the secrets of the old ones where their placeholder is."""
    if not isinstance(arguments, dict):
        raise InvalidInput(field, "must be a JSON object")
    sealed = sealing.secret_args(tool, old) if isinstance(old, dict) else frozenset()
    secret = json_schema.write_only(schema) | (sealed - sealing.held_args(tool, old))
    args, restored = {}, set()
    for name, value in arguments.items():
        if name in sealed and name in old and value == sealing.REDACTED:
            restored.add(name)
            args[name] = old[name]
            continue
        if name in secret:
            raise InvalidInput(f"{field}.{name}", "is secret: only the model can give it")
        _refuse_secrets(value, f"{field}.{name}")
        args[name] = value
    for name in sorted((secret & set(schema.get("required", ()))) - restored):
        raise InvalidInput(f"{field}.{name}", "is secret: only the model can give it")
    check_schema(schema, args, secret=frozenset(restored) | secret, field=field)
    return args


def _refuse_secrets(value: Any, field: str) -> None:
    if sealing.looks_sealed(value):
        raise InvalidInput(field, "must not hold a sealed secret")
    if sealing.REDACTED in json.dumps(value, ensure_ascii=False):
        raise InvalidInput(field, f"must not hold {sealing.REDACTED}: no secret is there")
