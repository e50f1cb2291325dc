"""Describes a run, one line for each event that matters to an author, to read when a test fails."""

import json
from typing import Any

from runtime.core.run import events as e


def lines_of(events: tuple[e.Event, ...]) -> tuple[str, ...]:
    """List the events of a run, oldest first."""
    return tuple(line for event in events for line in _lines(event))


def _lines(event: e.Event) -> list[str]:
    match event:
        case e.FrameOpened():
            return [f"{event.agent} begins with {_json(event.input)}"]
        case e.AgentChanged():
            parts = ", ".join(change.part for change in event.changes)
            return [f"{event.frame} continues under another version: {parts}"]
        case e.ModelReplied():
            lines = [f"model: {event.text}"] if event.text else []
            return lines + [f"model: {call.tool} {_json(call.args)}" for call in event.calls]
        case e.Compacted():
            return [f"summed up: {event.summary}"]
        case e.ModelFailed():
            return [f"model failed: {event.error}"]
        case e.MessageReceived():
            return [f"{event.by} wrote: {event.text}"]
        case e.WaitStarted():
            condition = f"event {event.event} with {_json(event.match)}" if event.event else "time"
            return [f"{event.call} waits for {condition} until {event.until.isoformat()}"]
        case e.WaitEnded() if event.outcome != "again":
            return [f"{event.call} {event.outcome}: {_json(event.result)}"]
        case e.CallPreviewed(preview=preview):
            detail = f": {_json(preview.shown)}" if preview.material else f" not: {preview.missing}"
            return (
                [f"{event.call} previewed{detail}"] if preview.material or preview.missing else []
            )
        case e.CallRefused():
            return [f"{event.call} refused: {event.reason}"]
        case e.GateOpened():
            return [f"{event.call} waits for a person ({event.kind})"]
        case e.GateDecided():
            detail = f": {event.reason}" if event.reason else ""
            return [f"{event.call} {event.by or 'time'} said {event.verdict}{detail}"]
        case e.ToolReturned(stored=e.BlobRef() as stored):
            return [f"{event.call} returned {stored.size} bytes: {stored.preview}…"]
        case e.ToolReturned():
            return [f"{event.call} returned {_json(event.result)}"]
        case e.ToolFailed() | e.OutcomeUnknown() | e.RetryScheduled():
            return [f"{event.call or 'model'} {event.type}: {event.error}"]
        case e.Completed():
            text = event.output if isinstance(event.output, str) else _json(event.output)
            return [f"completed: {text}"]
        case e.Failed():
            return [f"failed: {event.error}"]
        case e.Cancelled():
            return [f"cancelled: {event.reason}"]
        case _:
            return []


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
