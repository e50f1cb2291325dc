"""Reads the frames and calls of a state: what a fork has copied, or what a shortened journal begins with."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.core.run.continuation import Call, Continuation, Frame
from runtime.core.run.events import ForkChange
from runtime.core.run.frames import MESSAGE
from runtime.core.values.enums import CallState, Verdict
from runtime.core.values.errors import UnknownSubject
from runtime.reads.labels import MessageKind
from runtime.reads.redaction import redact
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.frames import FrameRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A message of a copied frame; see Message."""

    turn: int
    kind: MessageKind
    by: str
    value: Any
    reported_by: str = ""


def copied(
    state: Continuation, at: datetime, requester: str
) -> Iterator[tuple[FrameRecord, list[Utterance]]]:
    """Yield each frame with its messages. Its spans begin at `at`, those of calls with the calls of its turn.

    `requester` gave the input of the root.
    """
    records: dict[str, FrameRecord] = {}
    for frame in state.frames.values():
        record = records[frame.id] = FrameRecord(
            frame=frame,
            by_id={call.id: _record(frame, call) for call in frame.calls},
            delivered=sum(message["role"] == MESSAGE for message in frame.messages),
        )
        record.items += [record.by_id[call.id] for call in frame.of_turn()]
        record.open(at)
        parent = records.get(frame.parent or "")
        if parent is not None and frame.call in parent.by_id:
            parent.delegate(frame.call, record)
        yield record, list(_utterances(frame, parent.agent if parent else requester))


def _record(frame: Frame, call: Call) -> CallRecord:
    return CallRecord(
        call=call,
        frame=frame.id,
        agent=frame.agent,
        verdict=_verdict(call),
        decided_by=call.reported_by or "",
        lost=call.state is CallState.UNKNOWN,
    )


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
        return call.verdict
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
