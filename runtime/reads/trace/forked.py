"""Reads the frames and calls of a state: what a fork has copied, or what a shortened journal begins with."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from runtime.core.run.continuation import Continuation, Frame
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


def copy_frames(
    state: Continuation, at: datetime, requester: str
) -> Iterator[tuple[FrameRecord, list[Utterance]]]:
    """Yield each frame with its messages. Its spans begin at `at`, those of calls with the calls of its turn.

    `requester` gave the input of the root.
    """
    records: dict[str, FrameRecord] = {}
    for frame in state.frames.values():
        calls = {}
        for call in frame.calls:
            verdict = call.verdict
            if call.reported_by is not None:
                verdict = Verdict.ANSWER if call.answered else Verdict.HAPPENED
            calls[call.id] = CallRecord(
                call=call,
                frame=frame.id,
                agent=frame.agent,
                verdict=verdict,
                decided_by=call.reported_by or "",
                lost=call.state is CallState.UNKNOWN,
            )
        record = records[frame.id] = FrameRecord(
            frame=frame,
            by_id=calls,
            delivered=sum(message["role"] == MESSAGE for message in frame.messages),
        )
        record.items += [record.by_id[call.id] for call in frame.list_turn_calls()]
        record.open(at)
        parent = records.get(frame.parent or "")
        if parent is not None and frame.call in parent.by_id:
            parent.delegate(frame.call, record)
        yield record, list(_list_utterances(frame, parent.agent if parent else requester))


def describe_change(state: Continuation, change: ForkChange) -> str:
    """Say what a person changed in a fork."""
    if change.kind == "message":
        return "a message"
    if change.kind == "reply":
        return "the next reply of the model"
    try:
        return f"the {change.kind} of {redact(state.call(change.frame, change.call).tool)}"
    except UnknownSubject:
        return "a call"


def _list_utterances(frame: Frame, giver: str) -> Iterator[Utterance]:
    turn = frame.turn - sum(message["role"] == "model" for message in frame.messages)
    if frame.instructions:
        yield Utterance(turn=turn, kind="instructions", by=frame.agent, value=frame.instructions)
    for message in frame.messages:
        match message["role"]:
            case "input":
                yield Utterance(turn=turn, kind="input", by=giver, value=message["content"])
            case "model":
                turn += 1
                giver_of_reply = message.get("given_by", "")
                if message["text"]:
                    yield Utterance(
                        turn=turn,
                        kind="text",
                        by=frame.agent,
                        value=message["text"],
                        reported_by=giver_of_reply,
                    )
                for name in message["calls"]:
                    call = frame.find(name)
                    yield Utterance(
                        turn=turn,
                        kind="call",
                        by=frame.agent,
                        value={"tool": call.tool, "args": call.proposed},
                        reported_by=giver_of_reply,
                    )
            case "results":
                for result in message["results"]:
                    yield Utterance(
                        turn=turn,
                        kind="result" if result["outcome"] == CallState.RETURNED else "fault",
                        by=result["tool"],
                        value=frame.find(result["call"]).stored or result["content"],
                        reported_by=result.get("changed_by") or result.get("reported_by", ""),
                    )
            case "summary":
                yield Utterance(turn=turn, kind="summary", by=frame.agent, value=message["content"])
            case "message":
                yield Utterance(
                    turn=turn, kind="message", by=message["by"], value=message["content"]
                )
            case _:
                continue
