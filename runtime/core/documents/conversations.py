"""Reads the conversations of a run's frames from the text of its entries.

The continuation of a long run leaves out the messages of its frames and the calls of earlier turns, because the
entries contain them. They are most of a long run. They are read from the stored events: the reducer would build a new
state for each event, which takes several times as long.

So two modules know the effect of an event on a message or a settled call. A continuation is only brief if this
module's result equals the reducer's. If a later read finds another number of messages or calls, the entries are
folded instead.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import TypeAdapter
from pydantic_core import from_json

from runtime.core.documents.compression import plain_text
from runtime.core.documents.upcasters import SCHEMA, upcast
from runtime.core.run.call_options import CallOptions
from runtime.core.run.continuation import Call, Continuation, Edited, Frame, replace
from runtime.core.run.events import BlobRef
from runtime.core.run.frames import MESSAGE, result_of
from runtime.core.values.enums import SETTLED, CallState
from runtime.core.values.errors import CoreError
from runtime.core.values.ids import ROOT, call_id

Event = dict[str, Any]
Fields = dict[str, Any]  # of a call
Told = dict[str, tuple[int, int]]  # how many messages and calls are left out, by frame

_TERMS = TypeAdapter(CallOptions)
_NEW = Call(id="", tool="", args=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A state without the parts its entries contain, and their number; None if nothing is left out."""

    state: Continuation
    told: Told | None = None


class Conversations:
    """The conversations in the entries up to `position`.

    `whole` is False once an entry holds more than this module reads.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset to the state before the first entry."""
        self.position = 0
        self.whole = True
        self._input: Any = None
        self._frames: dict[str, _Conversation] = {}
        self._unheard: list[dict[str, Any]] = []

    def read(self, text: str) -> None:
        """Read the next entry."""
        self.position += 1
        if not self.whole:
            return
        try:
            document = from_json(plain_text(text))
            if document["schema"] != SCHEMA:
                document = upcast(document)
            for event in document["events"]:
                self._consume(event)
        except (LookupError, TypeError, ValueError, CoreError):
            self.whole = False  # the fold reports the cause

    def brief(self, now: Continuation) -> Brief | None:
        """Return `now`, the state after the last entry read, without the parts the entries contain.

        None if they differ.
        """
        if not self.whole or now.left or now.input != self._input:
            return None
        if self._frames.keys() != now.frames.keys() or not all(
            self._frames[name].covers(frame) for name, frame in now.frames.items()
        ):
            return None
        told = {name: frame.length for name, frame in self._frames.items()}
        frames = {
            name: replace(frame, messages=(), calls=frame.of_turn())
            for name, frame in now.frames.items()
        }
        return Brief(state=replace(now, input=None, frames=frames), told=told)

    def restored(self, state: Continuation, told: Told) -> Continuation | None:
        """Return the full state of a brief one. None if the entries have another number of messages or calls."""
        lengths = {name: frame.length for name, frame in self._frames.items()}
        if not self.whole or lengths != told:
            return None
        frames = {name: self._frames[name].completed(frame) for name, frame in state.frames.items()}
        return replace(state, input=self._input, frames=frames)

    def _consume(self, event: Event) -> None:
        if (change := _CALLS.get(event["type"])) is not None:
            if event["call"]:  # without a call it is a gate of the frame
                self._frames[event["frame"]].change(event["call"], change, event)
            return
        match event["type"]:
            case "ModelReplied":
                self._reply(event)
            case "RunStarted":
                self._input = event["input"]
            case "FrameOpened":
                self._open(event)
            case "FrameClosed":
                self._close(event)
            case "MessageReceived":
                heard = {"role": MESSAGE, "by": event["by"], "content": event["text"]}
                self._unheard.append(heard)
            case "AgentChanged":
                self._frames[event["frame"]].forbid(event.get("writes", ()))
            case "Retried":
                for frame in self._frames.values():
                    frame.try_again()
            case kind if kind not in _SILENT:
                self.whole = False

    def _open(self, event: Event) -> None:
        frame, parent, call = event["frame"], event.get("parent"), event.get("call")
        self._frames[frame] = _Conversation(event["input"], parent, call)
        if parent is not None and call is not None:
            self._frames[parent].change(call, _delegated, event)

    def _close(self, event: Event) -> None:
        frame = self._frames.pop(event["frame"])
        if frame.parent is not None and frame.call is not None:
            self._frames[frame.parent].change(frame.call, _answered, event)

    def _reply(self, event: Event) -> None:
        heard = event.get("heard", 0)
        if heard and event["frame"] == ROOT:
            self._frames[ROOT].messages += self._unheard[:heard]
            del self._unheard[:heard]
        self._frames[event["frame"]].reply(event)


class _Conversation:
    """The conversation of one frame: its messages, the calls of earlier turns, and the calls of its open turn."""

    def __init__(self, given: Any, parent: str | None, call: str | None) -> None:
        self.parent = parent
        self.call = call
        self.messages: list[dict[str, Any]] = [{"role": "input", "content": given}]
        self.calls: list[Call] = []
        self._turn = 0
        self._settled: list[Call] = []
        self._open: dict[str, Fields] = {}

    @property
    def length(self) -> tuple[int, int]:
        return len(self.messages), len(self.calls)

    def covers(self, frame: Frame) -> bool:
        """Say whether these messages and calls equal the frame's.

        If so, keep the frame's own objects for a faster next check.
        """
        messages, calls = list(frame.messages), list(frame.calls)
        del calls[len(calls) - len(frame.of_turn()) :]
        if self.messages != messages or self.calls != calls:
            return False
        self.messages, self.calls = messages, calls
        return True

    def completed(self, frame: Frame) -> Frame:
        return replace(frame, messages=tuple(self.messages), calls=tuple(self.calls) + frame.calls)

    def reply(self, event: Event) -> None:
        self._turn += 1
        self.calls += self._settled
        self._settled = []
        self._open = {
            (name := call_id(self._turn, index)): {
                "id": name,
                "tool": proposal["tool"],
                "args": proposal["args"],
                "state": CallState.PROPOSED,
            }
            for index, proposal in enumerate(event["calls"])
        }
        message = {
            "role": "model",
            "reply": event["reply"],
            "text": event["text"],
            "calls": list(self._open),
        }
        if event.get("output_kept"):
            message["output"] = event["output"]
        self.messages.append(message)

    def change(self, call: str, change: "Change", event: Event) -> None:
        """Change an open call. When the last call is settled, add all results to the messages."""
        fields = self._open[call]
        change(fields, event)
        if fields["state"] not in SETTLED:
            return
        if all(one["state"] in SETTLED for one in self._open.values()):
            self._settled = [_made(one) for one in self._open.values()]
            results = [result_of(one) for one in self._settled]
            self.messages.append({"role": "results", "results": results})
            self._open = {}

    def forbid(self, writes: list[str]) -> None:
        for fields in self._open.values():
            terms = fields.get("terms")
            if terms is not None and fields["tool"] in writes and fields["state"] not in SETTLED:
                fields["terms"] = {**terms, "effect": "write"}

    def try_again(self) -> None:
        for fields in self._open.values():
            if fields["state"] is CallState.CLOSED:
                fields |= {"state": CallState.PROPOSED, "gate": None, "until": None, "result": None}
                in_doubt = fields.get("attempt", 0) > fields.get("failures", 0)
                if (edited := fields.get("edited")) and not in_doubt:
                    fields |= {"args": edited["proposed"], "edited": None}


Change = Callable[[Fields, Event], None]


def _made(fields: Fields) -> Call:
    """Make a call from its JSON fields."""
    read = {name: _READ[name](fields[name]) for name in _READ.keys() & fields if fields[name]}
    return replace(_NEW, **(fields | read))


def _stored(value: dict[str, Any]) -> BlobRef:
    return BlobRef(**value)


def _edited_of(value: dict[str, Any]) -> Edited:
    return Edited(**value)


_READ: dict[str, Callable[[Any], Any]] = {
    "terms": _TERMS.validate_python,
    "gate": UUID,
    "started_at": datetime.fromisoformat,
    "until": datetime.fromisoformat,
    "stored": _stored,
    "edited": _edited_of,
}


# The change that an event makes to its call


def _admitted(call: Fields, event: Event) -> None:
    call["terms"] = event["terms"]


def _previewed(_: Fields, __: Event) -> None:
    """Change nothing: a settled call has no preview."""


def _refused(call: Fields, event: Event) -> None:
    call |= {"state": CallState.REFUSED, "result": event["reason"]}


def _gated(call: Fields, event: Event) -> None:
    call |= {"terms": event["terms"], "gate": event["gate"]}


def _decided(call: Fields, event: Event) -> None:
    verdict = event["verdict"]
    if verdict in ("happened", "answer"):
        call |= {"state": CallState.RETURNED, "reported_by": event["by"]}
        call["answered"] = verdict == "answer"
        call |= {"result": event.get("result"), "stored": event.get("stored")}
    elif verdict == "edit":
        proposed = (call.get("edited") or {"proposed": call["args"]})["proposed"]
        call |= {
            "args": event["edit"]["args"],
            "terms": {**call["terms"], "digest": event["edit"]["digest"]},
            "edited": {"by": event["by"], "proposed": proposed},
        }
    elif verdict in ("deny", "request_changes", "expire", "give_up"):
        state = CallState.FAILED if verdict == "give_up" else CallState.DENIED
        call |= {"state": state, "result": event["reason"]}
        if verdict != "deny":
            call["verdict"] = verdict


def _closed(call: Fields, _: Event) -> None:
    call["state"] = CallState.CLOSED


def _started(call: Fields, event: Event) -> None:
    call["attempt"] = event["attempt"]
    call["started_at"] = event["at"]


def _returned(call: Fields, event: Event) -> None:
    call["state"] = CallState.RETURNED
    call["result"] = event["result"]
    call["stored"] = event.get("stored")


def _failed(call: Fields, event: Event) -> None:
    call |= {"state": CallState.FAILED, "result": event["error"]}


def _lost(call: Fields, _: Event) -> None:
    call["gate"] = None


def _arrived(call: Fields, event: Event) -> None:
    returned = event["outcome"] == "returned"
    call |= {
        "state": CallState.RETURNED if returned else CallState.FAILED,
        "result": event.get("result") if returned else event.get("error", ""),
        "stored": event.get("stored"),
    }


def _scheduled(call: Fields, event: Event) -> None:
    call["failures"] = call.get("failures", 0) + (event["cause"] == "error")
    call["until"] = event.get("until")


def _waiting(call: Fields, event: Event) -> None:
    call["until"] = event["until"]


def _waited(call: Fields, event: Event) -> None:
    call["until"] = None
    if (outcome := event.get("outcome", "again")) != "again":
        call |= {"state": _WAITED[outcome], "result": event.get("result")}


_WAITED = {
    "arrived": CallState.RETURNED,
    "timed_out": CallState.RETURNED,
    "refused": CallState.FAILED,
    "closed": CallState.CLOSED,
}


def _delegated(call: Fields, event: Event) -> None:
    call["frame"] = event["frame"]


def _answered(call: Fields, event: Event) -> None:
    state = CallState.RETURNED if event["outcome"] == "answered" else CallState.FAILED
    call |= {"state": state, "result": event["content"]}


_CALLS: dict[str, Change] = {
    "CallAdmitted": _admitted,
    "CallPreviewed": _previewed,
    "CallRefused": _refused,
    "GateOpened": _gated,
    "GateDecided": _decided,
    "GateClosed": _closed,
    "ToolStarted": _started,
    "ToolReturned": _returned,
    "ToolFailed": _failed,
    "OutcomeUnknown": _lost,
    "OutcomeArrived": _arrived,
    "RetryScheduled": _scheduled,
    "WaitStarted": _waiting,
    "WaitEnded": _waited,
}
# Other events are left out: a fork has messages of another run, an imported run loses permissions, and a summary must
# outlive the entries before it.
_SILENT = frozenset(
    {
        "Completed",
        "Failed",
        "Cancelling",
        "Cancelled",
        "Exported",
        "Paused",
        "Resumed",
        "ModelFailed",
        "MemorySummarised",
        "BudgetExceeded",
        "BudgetGranted",
        "QuestionAsked",
        "QuestionAnswered",
        "QuestionFailed",
        "AnswerDropped",
    }
)
