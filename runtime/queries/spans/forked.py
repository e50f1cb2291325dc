"""Reads the frames and calls of a state: what a fork has copied, or what a shortened journal begins with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from runtime.core.call_states import SETTLED, CallState
from runtime.core.continuation import Call, Continuation, Frame, FrameState
from runtime.core.enums import Verdict
from runtime.core.errors import UnknownSubject
from runtime.core.events import ForkChange, GateOpened
from runtime.core.machine.calls.edits import unedited
from runtime.core.machine.messages import MESSAGE
from runtime.queries.labels import MessageKind
from runtime.queries.redaction import redact
from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.frames import FrameRecord

_ASKING = frozenset({FrameState.ASKING, FrameState.RETRYING})


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A message of a copied frame; see Message."""

    turn: int
    kind: MessageKind
    by: str
    value: Any
    reported_by: str = ""


def copied(state: Continuation, at: datetime) -> Iterator[tuple[FrameRecord, list[Utterance]]]:
    """Yield each frame with its messages. Its spans begin at `at`, those of calls with the calls of its turn."""
    made: dict[str, FrameRecord] = {}
    for frame in state.frames.values():
        record = made[frame.id] = FrameRecord(
            id=frame.id,
            agent=frame.agent,
            fingerprint=frame.fingerprint,
            plan=frame.plan,
            parent=frame.parent,
            call=frame.call,
            is_item=frame.item,
            turn=frame.turn,
            prompt=frame.pinned,
            by_id={call.id: _call(frame, call) for call in frame.calls},
            todo=tuple(replace(one, text=redact(one.text)) for one in frame.todo),
            delivered=sum(message["role"] == MESSAGE for message in frame.messages),
        )
        record.of_turn = [record.by_id[call.id] for call in frame.of_turn()]
        record.items += record.of_turn
        record.open(at, calls_model=frame.state in _ASKING)
        parent = made.get(frame.parent or "")
        if parent is not None and frame.call in parent.by_id:
            parent.delegate(parent.by_id[frame.call], record)
        yield record, list(_utterances(frame, parent.agent if parent else state.requester))


def open_gates(state: Continuation) -> Iterator[GateOpened]:
    """Yield the open gates of a state as the events that opened them, without their reasons and times."""
    for one in state.pending:
        terms = state.call(one.frame, one.call).terms if one.call else None
        yield GateOpened(
            gate=one.gate,
            kind=one.kind,
            frame=one.frame,
            call=one.call,
            terms=terms,
            expires_at=one.expires_at,
            version=one.version,
        )


def _call(frame: Frame, call: Call) -> CallRecord:
    settled_badly = call.state in SETTLED - {CallState.RETURNED}
    return CallRecord(
        id=call.id,
        frame=frame.id,
        agent=frame.agent,
        tool=call.tool,
        args=redact(call.args),
        state=call.state,
        note=redact(str(call.result or "")) if settled_badly else "",
        effect=call.terms.effect if call.terms else None,
        digest=call.terms.digest if call.terms else "",
        answers=call.terms is not None and call.terms.answers,
        tells=call.terms is not None and call.terms.tells,
        verdict=_verdict(call),
        decided_by=call.reported_by or "",
        changed_by=call.changed_by or "",
        edited_by=call.edited.by if call.edited else "",
        proposed=redact(call.edited.proposed) if call.edited else None,
        **_given(call),
        attempt=call.attempt,
        started_at=call.started_at,
        keeps_plan=bool(call.terms and call.terms.plan),
        lost=call.state is CallState.UNKNOWN,
        result=None if settled_badly else redact(call.stored or call.result),
    )


def _given(call: Call) -> dict[str, Any]:
    """Return the arguments that a person gave in a fork, and that person."""
    first = unedited(call)
    if first.edited is None:
        return {}
    given = {"given": redact(first.args), "given_by": first.edited.by}
    return {**given, "is_given": call.edited is not None and call.edited.of_reply(call.args)}


def changed_text(state: Continuation, change: ForkChange) -> str:
    """Say what a person changed in a fork."""
    if change.kind == "message":
        return "a message"
    if change.kind == "reply":
        return "the next reply of the model"
    try:
        return f"the {change.kind} of {redact(state.call(change.frame, change.call).tool)}"
    except UnknownSubject:
        return "a call"


def _verdict(call: Call) -> Verdict | None:
    if call.reported_by is None:
        return Verdict.REQUEST_CHANGES if call.verdict == "request_changes" else None
    return Verdict.ANSWER if call.answered else Verdict.HAPPENED


def _utterances(frame: Frame, giver: str) -> Iterator[Utterance]:
    turn = frame.turn - sum(message["role"] == "model" for message in frame.messages)
    if frame.instructions:
        yield Utterance(turn=turn, kind="instructions", by=frame.agent, value=frame.instructions)
    for message in frame.messages:
        match message["role"]:
            case "input":
                yield Utterance(turn=turn, kind="input", by=giver, value=message["content"])
            case "model":
                turn += 1
                yield from _replied(frame, message, turn)
            case "results":
                yield from (_result(frame, result, turn) for result in message["results"])
            case "summary":
                yield Utterance(turn=turn, kind="summary", by=frame.agent, value=message["content"])
            case "message":
                yield Utterance(
                    turn=turn, kind="message", by=message["by"], value=message["content"]
                )
            case _:
                continue


def _replied(frame: Frame, message: dict[str, Any], turn: int) -> Iterator[Utterance]:
    given_by = message.get("given_by", "")
    if message["text"]:
        yield Utterance(
            turn=turn, kind="text", by=frame.agent, value=message["text"], reported_by=given_by
        )
    for name in message["calls"]:
        call = frame.find(name)
        value = {"tool": call.tool, "args": call.proposed}
        yield Utterance(turn=turn, kind="call", by=frame.agent, value=value, reported_by=given_by)


def _result(frame: Frame, result: dict[str, Any], turn: int) -> Utterance:
    returned = result["outcome"] == CallState.RETURNED
    return Utterance(
        turn=turn,
        kind="result" if returned else "fault",
        by=result["tool"],
        value=frame.find(result["call"]).stored or result["content"],
        reported_by=result.get("changed_by") or result.get("reported_by", ""),
    )
