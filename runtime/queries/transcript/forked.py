"""Reads the frames and calls that a fork has copied from another run."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from runtime.core.continuation import SETTLED, Call, CallState, Continuation, Frame
from runtime.core.machine.messages import MESSAGE
from runtime.queries.transcript.state import CallRecord, FrameRecord
from runtime.queries.transcript.views import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """A message of a copied frame; see Message."""

    turn: int
    kind: Kind
    by: str
    value: Any
    reported_by: str = ""


def records(state: Continuation) -> Iterator[tuple[FrameRecord, tuple[Utterance, ...]]]:
    """Yield each frame with its calls and messages."""
    for frame in state.frames.values():
        sketch = FrameRecord(
            id=frame.id,
            agent=frame.agent,
            fingerprint=frame.fingerprint,
            plan=frame.plan,
            parent=frame.parent,
            call=frame.call,
            turn=frame.turn,
            calls={call.id: _sketch(frame, call) for call in frame.calls},
            heard=sum(message["role"] == MESSAGE for message in frame.messages),
        )
        parent = state.frames.get(frame.parent or "")
        yield sketch, tuple(_said(frame, parent.agent if parent else state.requester))


def _sketch(frame: Frame, call: Call) -> CallRecord:
    settled_badly = call.state in SETTLED - {CallState.RETURNED}
    return CallRecord(
        id=call.id,
        frame=frame.id,
        agent=frame.agent,
        tool=call.tool,
        args=call.args,
        state=call.state,
        note=str(call.result or "") if settled_badly else "",
        effect=call.terms.effect if call.terms else None,
        attempt=call.attempt,
        started_at=call.started_at,
        lost=call.state is CallState.UNKNOWN,
        result=None if settled_badly else call.stored or call.result,
        child=call.frame,
    )


def _said(frame: Frame, giver: str) -> Iterator[Utterance]:
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
    if message["text"]:
        yield Utterance(turn=turn, kind="text", by=frame.agent, value=message["text"])
    for name in message["calls"]:
        call = frame.find(name)
        value = {"tool": call.tool, "args": call.args}
        yield Utterance(turn=turn, kind="call", by=frame.agent, value=value)


def _result(frame: Frame, result: dict[str, Any], turn: int) -> Utterance:
    returned = result["outcome"] == CallState.RETURNED
    return Utterance(
        turn=turn,
        kind="result" if returned else "fault",
        by=result["tool"],
        value=frame.find(result["call"]).stored or result["content"],
        reported_by=result.get("reported_by", ""),
    )
