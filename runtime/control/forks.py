"""Forks a run: starts a new run from a copy of its state. The original does not change.

A person may change one thing in the fork, for example the next reply of a frame's model. Such a reply has a text, calls
of the agent's tools and sub-agents, or both. A secret of the recorded reply stays where its placeholder is.
"""

import json
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any
from uuid import UUID

from runtime.control import user_actions
from runtime.control.edit import check_schema, edit
from runtime.core.documents.blobs import collect_blob_refs
from runtime.core.run.continuation import (
    Continuation,
    Frame,
    GivenReply,
    add_people,
    derive_status,
    list_steering_people,
    merge_people,
)
from runtime.core.run.events import Event, ForkChange, Forked, Proposal, RunStarted
from runtime.core.run.forks import (
    change_value,
    find_next_reply,
    fork_document,
    list_changeable,
    without_permissions,
)
from runtime.core.run.reducer import Entry
from runtime.core.values import json_schema
from runtime.core.values.json_values import is_equal
from runtime.core.values.limits import MAX_CALLS, MAX_MESSAGE, MAX_REPORTED, MAX_TOOL
from runtime.errors import Forbidden, InvalidInput, NotQuiescent, RunArchived, require_json_input
from runtime.keyring import sealing
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.agents import ToolSchemas
from runtime.reads.redaction import redact
from runtime.store import runs
from runtime.store.pool import Connection
from runtime.store.tables import blobs, journal

FIELD = "change"
VALUE = "change.value"
_FIELDS = frozenset({"kind", "frame", "call", "number", "value"})
_REPLY_FIELDS = frozenset({"text", "calls"})
_CALL = frozenset({"tool", "arguments"})


def fork(*, run: UUID, position: object, actor: Actor, change: object = None) -> UUID:
    """Start a new run from the state of this one after entry `position`. Return its id.

    The fork repeats no recorded call and inherits no approval. `change` is what the actor changes in it.

    Raise, in this order: NoSuchRun; Forbidden (`not_eligible`); InvalidInput naming `position`; RunArchived;
    NoSuchEntry or HistoryRemoved; NotQuiescent; Tampered, KeyMissing or NewerSchema; InvalidInput naming `change`.
    """
    original = user_actions.require_readable_run(run, actor)
    if not wiring.resolve_access().may_fork(actor, original.requester):
        raise Forbidden(
            "not_eligible", f"{actor.person} may not fork runs of {original.requester}."
        )
    if not isinstance(position, int) or isinstance(position, bool):
        raise InvalidInput("position", "must be the number of an entry")
    if not 1 <= position <= original.position:
        raise InvalidInput("position", f"must be an entry of the run: 1 to {original.position}")
    with user_actions.open_transaction() as connection:
        new, recorded_change = _copy(connection, run, position, actor, change)
        detail: dict[str, str | None] = {"position": str(position)}
        if recorded_change is not None:
            target = recorded_change.call or (
                str(recorded_change.number) if recorded_change.number else ""
            )
            detail["changed"] = f"{recorded_change.kind} {recorded_change.frame} {target}".rstrip()
        approvals = wiring.resolve_approvals()
        approvals.record_audit(
            run=run, actor=actor, act="forked", detail={"into": str(new), **detail}
        )
        approvals.record_audit(
            run=new, actor=actor, act="started", detail={"fork of": str(run), **detail}
        )
        user_actions.notify(new)
    return new


def apply_change(
    points: Iterable[journal.ForkPoint], sent: object, by: str, recorded: Iterable[Event]
) -> tuple[Continuation, ForkChange]:
    """Return the first state of a fork with this change by a person. Raise InvalidInput naming `change` or its field.

    The fork starts at the first of these points at which the value can be changed. `recorded` are the events of the
    later entries.
    """
    if not isinstance(sent, dict) or not sent.keys() <= _FIELDS or "value" not in sent:
        raise InvalidInput(
            FIELD,
            "must have kind and value, and number (message), frame (reply), or frame and call",
        )
    target = {name: value for name, value in sent.items() if name != "value"}
    matches = (
        (change, old, point)
        for point in points
        for change, old in list_changeable(without_permissions(point.state))
        if _identify_change(change) == target
    )
    change, old, point = next(matches, (None, None, None))
    if change is None or point is None:
        raise InvalidInput(FIELD, "names nothing that can be changed after this entry")
    now = without_permissions(point.state)
    if change.kind == "arguments" and sealing.list_held_args(
        now.call(change.frame, change.call).tool, old
    ):
        raise InvalidInput(FIELD, "names arguments that wait for a reviewer")
    if change.kind == "reply":
        frame = now.frame(change.frame)
        replaced = find_next_reply(chain(point.later, recorded), change.frame)
        reply = read_given_reply(frame, replaced, sent["value"], by, VALUE)
        return change_value(now, change, reply, by), change
    value = _read_new_value(now, change, old, sent["value"])
    if is_equal(value, old):
        raise InvalidInput(VALUE, "is unchanged")
    return change_value(now, change, value, by), change


def find_tool_schemas(now: Continuation, change: ForkChange) -> ToolSchemas | None:
    """Return the schemas of the tool of this call, as its agent was last published."""
    frame = now.frame(change.frame)
    tool = frame.find(change.call).tool
    return wiring.resolve_catalogue().find_tool_schemas(frame.agent, tool)


def read_given_reply(
    frame: Frame, recorded: GivenReply | None, value: object, by: str, field: str
) -> GivenReply:
    """Return the reply in `value`. `recorded` is the one that it replaces, if any.

    Raise InvalidInput naming `field`, or a field in it.
    """
    if wiring.resolve_catalogue().is_working_on_items(frame.agent):
        raise InvalidInput(field, f"cannot be given: code decides the calls of {frame.agent}")
    if not isinstance(value, dict) or not value.keys() <= _REPLY_FIELDS:
        raise InvalidInput(field, "must be a JSON object with text, calls or both")
    require_json_input(value, field, MAX_REPORTED)
    text = _check_text(recorded, value.get("text", ""), f"{field}.text")
    calls = _read_calls(frame, recorded, value.get("calls", []), f"{field}.calls")
    if not text.strip() and not calls:
        raise InvalidInput(field, "must have a text or a call")
    if not calls and redact(text) != text:  # the worker would open it, and the requester read it
        raise InvalidInput(f"{field}.text", "is hidden, so it cannot be the answer")
    if not calls:
        _check_answer(frame, text, f"{field}.text")
    if recorded and is_equal(
        _collect_reply_parts(text, calls), _collect_reply_parts(recorded.text, recorded.calls)
    ):
        raise InvalidInput(field, "is unchanged")
    return GivenReply(by=by, text=text, calls=calls)


def _copy(
    connection: Connection, run: UUID, position: int, actor: Actor, sent: object
) -> tuple[UUID, ForkChange | None]:
    """Write the new run, due at once and without a business key. Return its id and the change in it."""
    born, _ = runs.peek_start(connection)
    # Against retention, and as strong as the audit's lock: with a weaker one two forks would wait for each other.
    if runs.lock_row(connection, run).archived:
        raise RunArchived
    points = journal.list_fork_points(connection, run, position)
    if not points:
        raise NotQuiescent
    now, change = without_permissions(points[0].state), None
    if sent is not None:
        recorded = (
            event
            for sealed, entry in journal.read_history(connection, run).entries
            if sealed.position > position
            for event in entry.events
        )
        now, change = apply_change(points, sent, actor.person, recorded)
    now = add_people(now, *runs.read_origin(connection, run))
    events = (
        RunStarted(agent=now.agent, input=now.input, requester=actor.person),
        Forked(of=run, position=position, by=actor.person, state=fork_document(now), change=change),
    )
    first = journal.sign(born.run, 1, "", Entry(at=born.at, events=events))
    row = {
        "id": born.run,
        "agent": now.agent,
        "requester": actor.person,
        "origin": merge_people(list_steering_people(now), [actor.person]),
        "token": actor.token,
        "business_key": None,
        "input": json.dumps(now.input),
        "status": derive_status(now, leased=False),
        "head": first.seal.mac,
        "unheard": len(now.unheard),
    }
    runs.insert(connection, row)
    journal.append_first(connection, first)
    blobs.share_contents(connection, born.run, collect_blob_refs(now))
    blobs.share_remembered(connection, born.run, now.memory)
    return born.run, change


def _identify_change(change: ForkChange) -> dict[str, Any]:
    """Return the fields that name a change."""
    if change.kind == "message":
        return {"kind": change.kind, "number": change.number}
    if change.kind == "reply":
        return {"kind": change.kind, "frame": change.frame}
    return {"kind": change.kind, "frame": change.frame, "call": change.call}


def _read_new_value(now: Continuation, change: ForkChange, old: Any, new_value: Any) -> Any:
    if change.kind == "message":
        return user_actions.validate_text(
            VALUE, new_value, MAX_MESSAGE, required="must not be empty"
        )
    schemas = find_tool_schemas(now, change)
    if change.kind == "result":
        require_json_input(new_value, VALUE, MAX_REPORTED)
        if sealing.has_sealed_mark(new_value):
            raise InvalidInput(VALUE, "must not hold a sealed secret")
        schema = schemas.result if schemas is not None else None
        for problem in json_schema.list_problems(schema or {}, new_value, VALUE):
            raise InvalidInput(problem.field, problem.detail)
        return _with_secrets(old, new_value, VALUE)
    if schemas is None:
        raise InvalidInput(VALUE, "cannot be checked: no worker has published this tool")
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


def _collect_reply_parts(text: str, calls: tuple[Proposal, ...]) -> list[Any]:
    return [text, *([call.tool, call.args] for call in calls)]


def _check_text(recorded: GivenReply | None, text: object, field: str) -> str:
    if not isinstance(text, str):
        raise InvalidInput(field, "must be a text")
    if redact(text) != text:
        raise InvalidInput(field, "must not hold a sealed secret")
    if sealing.REDACTED not in text:
        return text
    old = recorded.text if recorded else ""
    if text != redact(old):
        raise InvalidInput(field, f"must not hold {sealing.REDACTED}: no secret is there")
    return old


def _check_answer(frame: Frame, text: str, field: str) -> None:
    """Raise InvalidInput unless the text is the typed answer of an agent that has one."""
    schema = wiring.resolve_catalogue().answer_schema(frame.agent)
    if schema is None:
        return
    try:
        answer = json.loads(text)
    except (ValueError, RecursionError) as exc:
        reason = "must be the answer as JSON, because the agent's answer is typed"
        raise InvalidInput(field, reason) from exc
    for problem in json_schema.list_problems(schema, answer, field):
        raise InvalidInput(problem.field, problem.detail)


def _read_calls(
    frame: Frame, recorded: GivenReply | None, calls: object, field: str
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
    schema = wiring.resolve_catalogue().call_schema(frame.agent, tool)
    if schema is None:
        raise InvalidInput(f"{field}.tool", f"{frame.agent} has no such tool or sub-agent")
    old = recorded.args if recorded is not None and recorded.tool == tool else {}
    args = _call_arguments(tool, schema, old, call["arguments"], f"{field}.arguments")
    return Proposal(tool=tool, args=args)


def _call_arguments(
    tool: str, schema: Mapping[str, Any], old: Any, arguments: object, field: str
) -> dict[str, Any]:
    """Return the arguments with the secrets of the old ones where their placeholder is."""
    if not isinstance(arguments, dict):
        raise InvalidInput(field, "must be a JSON object")
    sealed = sealing.list_secret_args(tool, old) if isinstance(old, dict) else frozenset()
    secret = json_schema.write_only(schema) | (sealed - sealing.list_held_args(tool, old))
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
    if sealing.has_sealed_mark(value):
        raise InvalidInput(field, "must not hold a sealed secret")
    if sealing.REDACTED in json.dumps(value, ensure_ascii=False):
        raise InvalidInput(field, f"must not hold {sealing.REDACTED}: no secret is there")
