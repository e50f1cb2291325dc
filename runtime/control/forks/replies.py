"""Checks the reply that a person gives in a fork in the place of the next one of a frame's model.

It has a text, calls of the agent's tools and sub-agents, or both. A secret of the recorded reply stays where its
placeholder is.
"""

import json
from collections.abc import Mapping
from typing import Any

from runtime.control.edit import check_schema
from runtime.core.continuation import Frame, GivenReply
from runtime.core.digest import require_json, same
from runtime.core.errors import NotJson
from runtime.core.events import ModelReplied, Proposal
from runtime.core.limits import MAX_CALLS, MAX_REPORTED, MAX_TOOL, size_of
from runtime.core.machine.calls.fork_changes import text_of
from runtime.core.schemas import json_schema
from runtime.errors import InvalidInput
from runtime.keyring import held, sealing
from runtime.ports import wiring
from runtime.queries.redaction import redact

_FIELDS = frozenset({"text", "calls"})
_CALL = frozenset({"tool", "arguments"})


def given_reply(
    frame: Frame, recorded: ModelReplied | None, value: object, by: str, where: str
) -> GivenReply:
    """Return the reply in `value`. `recorded` is the one that it replaces, None without one.

    Raise InvalidInput naming `where`, or a place in it.
    """
    if wiring.catalogue().works_on_items(frame.agent):
        raise InvalidInput(where, f"cannot be given: code decides the calls of {frame.agent}")
    if not isinstance(value, dict) or not value.keys() <= _FIELDS:
        raise InvalidInput(where, "must be a JSON object with text, calls or both")
    try:
        require_json(value, where)
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    if (size := size_of(value)) > MAX_REPORTED:
        raise InvalidInput(where, f"is {size} bytes of JSON, at most {MAX_REPORTED} are allowed")
    text = _text(recorded, value.get("text", ""), f"{where}.text")
    calls = _calls(frame, recorded, value.get("calls", []), f"{where}.calls")
    if not text.strip() and not calls:
        raise InvalidInput(where, "must have a text or a call")
    if not calls and redact(text) != text:  # the worker would open it, and the requester read it
        raise InvalidInput(f"{where}.text", "is hidden, so it cannot be the answer")
    if not calls:
        _check_answer(frame, text, f"{where}.text")
    if recorded is not None and same(
        _parts(text, calls), _parts(text_of(recorded), recorded.calls)
    ):
        raise InvalidInput(where, "is unchanged")
    return GivenReply(by=by, text=text, calls=calls)


def _parts(text: str, calls: tuple[Proposal, ...]) -> list[Any]:
    return [text, *([one.tool, one.args] for one in calls)]


def _text(recorded: ModelReplied | None, given: object, where: str) -> str:
    if not isinstance(given, str):
        raise InvalidInput(where, "must be a text")
    if redact(given) != given:
        raise InvalidInput(where, "must not hold a sealed secret")
    if sealing.REDACTED not in given:
        return given
    old = text_of(recorded) if recorded else ""
    if given != redact(old):
        raise InvalidInput(where, f"must not hold {sealing.REDACTED}: no secret is there")
    return old


def _check_answer(frame: Frame, text: str, where: str) -> None:
    """Raise InvalidInput unless the text is the typed answer of an agent that has one."""
    schema = wiring.catalogue().answer_schema(frame.agent)
    if schema is None:
        return
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as exc:
        why = "must be the answer as JSON, because the agent's answer is typed"
        raise InvalidInput(where, why) from exc
    for problem in json_schema.problems(schema, answer, where):
        raise InvalidInput(problem.field, problem.detail)


def _calls(
    frame: Frame, recorded: ModelReplied | None, given: object, where: str
) -> tuple[Proposal, ...]:
    if not isinstance(given, list):
        raise InvalidInput(where, "must be a list")
    if len(given) > MAX_CALLS:
        raise InvalidInput(where, f"has {len(given)} calls, at most {MAX_CALLS} are allowed")
    old = recorded.calls if recorded else ()
    return tuple(
        _call(frame, old[place] if place < len(old) else None, one, f"{where}.{place}")
        for place, one in enumerate(given)
    )


def _call(frame: Frame, recorded: Proposal | None, given: object, where: str) -> Proposal:
    """Return one call. `recorded` is the one in its place, None without one."""
    if not isinstance(given, dict) or given.keys() != _CALL:
        raise InvalidInput(where, "must have tool and arguments")
    tool = given["tool"]
    if not isinstance(tool, str) or not tool or len(tool) > MAX_TOOL:
        raise InvalidInput(f"{where}.tool", "must be the name of a tool")
    schema = wiring.catalogue().call_schema(frame.agent, tool)
    if schema is None:
        raise InvalidInput(f"{where}.tool", f"{frame.agent} has no such tool or sub-agent")
    old = recorded.args if recorded is not None and recorded.tool == tool else {}
    args = _arguments(tool, schema, old, given["arguments"], f"{where}.arguments")
    return Proposal(tool=tool, args=args)


def _arguments(
    tool: str, schema: Mapping[str, Any], old: Any, given: object, where: str
) -> dict[str, Any]:
    """Return the arguments with the secrets of the old ones where their placeholder is."""
    if not isinstance(given, dict):
        raise InvalidInput(where, "must be a JSON object")
    sealed = sealing.secret_args(tool, old) if isinstance(old, dict) else frozenset()
    secret = json_schema.write_only(schema) | (sealed - held.args(tool, old))
    found, kept = {}, set()
    for name, value in given.items():
        if name in sealed and name in old and value == sealing.REDACTED:
            kept.add(name)
            found[name] = old[name]
            continue
        if name in secret:
            raise InvalidInput(f"{where}.{name}", "is secret: only the model can give it")
        _refuse_secrets(value, f"{where}.{name}")
        found[name] = value
    for name in sorted((secret & set(schema.get("required", ()))) - kept):
        raise InvalidInput(f"{where}.{name}", "is secret: only the model can give it")
    check_schema(schema, found, secret=frozenset(kept) | secret, field=where)
    return found


def _refuse_secrets(value: Any, where: str) -> None:
    if sealing.looks_sealed(value):
        raise InvalidInput(where, "must not hold a sealed secret")
    if sealing.REDACTED in json.dumps(value, ensure_ascii=False):
        raise InvalidInput(where, f"must not hold {sealing.REDACTED}: no secret is there")
