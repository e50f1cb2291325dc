"""Writes continuations as JSON text, and reads them back.

The continuation of a long run is brief: it leaves out the messages of its frames and the calls of earlier turns, which
are most of it, because the entries contain them. They are read from the entries with what the reducer knows of a call
and a message, but without building a state for each event, which would take four times as long.

A continuation is only brief if this reading gives the same messages and calls as the reducer. If a later read finds
another number of them, as in a release that reads an event in another way, the entries are folded instead.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError

from runtime.core.documents import codec
from runtime.core.run import events
from runtime.core.run.calls import CallChange, call_after, propose_calls
from runtime.core.run.continuation import Call, Continuation, Frame, replace
from runtime.core.run.forks import restore_call
from runtime.core.run.frames import (
    make_input_message,
    make_person_message,
    make_reply_message,
    make_results_message,
    make_stricter,
)
from runtime.core.run.reducer import make_initial_state, step
from runtime.core.values.enums import SETTLED
from runtime.core.values.errors import CoreError, IllegalTransition, UnknownSubject, Unreadable

TextOf = Callable[[int], str]  # the entry text at a position; raises LookupError
Lengths = dict[str, tuple[int, int]]  # how many messages and calls are left out, by frame

_BRIEF = f'{codec.BEGINNING}"told":'
_CALL_EVENTS = frozenset(get_args(events.CallEvent) + get_args(events.WaitEvent))


@dataclass(frozen=True, slots=True, kw_only=True)
class Brief:
    """A state without the parts its entries contain, and their number; None if nothing is left out."""

    state: Continuation
    lengths: Lengths | None = None


def prepare() -> None:
    """Build what reads and writes documents, before a process is ready: else its first runs would wait for it."""
    codec.prepare()
    _make_continuation_adapter()
    _make_lengths_adapter()


def no_entries(position: int) -> str:
    """Raise LookupError: a continuation that leaves nothing out needs no entries."""
    raise LookupError(position)


def encode_continuation(now: Continuation, lengths: Lengths | None = None) -> str:
    """Write a continuation as JSON text. `lengths` counts the messages and calls that a brief state leaves out."""
    beginning = codec.BEGINNING if lengths is None else f"{_BRIEF}{json.dumps(lengths)},"
    text = _make_continuation_adapter().dump_json(now, exclude_defaults=True, ensure_ascii=True)
    return f"{beginning}{text.decode()[1:]}"


def decode_continuation(
    text: str, text_of: TextOf = no_entries, conversations: "Conversations | None" = None
) -> Continuation:
    """Read a continuation. If it is brief, the omitted parts are read from the run's entries into `conversations`.

    If that is not enough, the entries are folded. `conversations` must be empty or have read the first entries. Raises
    Unreadable or NewerSchema.
    """
    try:
        if text.startswith(codec.BEGINNING) and not text.startswith(_BRIEF):
            return _make_continuation_adapter().validate_json(text)
        document = codec.load_document(text)
        state = _make_continuation_adapter().validate_python(document)
        if "told" not in document:
            return state
        lengths = _make_lengths_adapter().validate_python(document["told"])
    except ValidationError as exc:
        raise Unreadable(f"not a continuation: {exc}") from exc
    conversations = conversations or Conversations()
    last = state.position
    if conversations.position > last:
        conversations.reset()
    try:
        for position in range(conversations.position + 1, last + 1):
            conversations.read(text_of(position))
        if (restored := conversations.restore(state, lengths)) is not None:
            return restored
        now = make_initial_state(state.run)
        for position in range(1, last + 1):
            entry = codec.decode_entry(text_of(position))
            now = step(now, entry.events, head=state.head, at=entry.at)
    except (LookupError, IllegalTransition, UnknownSubject) as exc:
        raise Unreadable(f"its entries lack its omitted parts ({exc})") from exc
    return now


def build_document(continuation: Continuation) -> dict[str, Any]:
    """Return the document with every field, for readers."""
    return {
        "schema": codec.SCHEMA,
        **_make_continuation_adapter().dump_python(continuation, mode="json"),
    }


class Conversations:
    """The conversations in the entries up to `position`.

    `is_complete` is False once an entry holds more than this class reads.
    """

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Reset to the state before the first entry."""
        self.position = 0
        self.is_complete = True
        self._input: Any = None
        self._frames: dict[str, _Conversation] = {}
        self._undelivered: list[dict[str, Any]] = []

    def read(self, text: str) -> None:
        """Read the next entry."""
        self.position += 1
        if not self.is_complete:
            return
        try:
            for event in codec.decode_entry(text).events:
                self._consume(event)
        except (LookupError, CoreError):
            self.is_complete = False  # the fold reports the cause

    def shorten_continuation(self, now: Continuation) -> Brief | None:
        """Return `now`, the state after the last entry read, without the parts the entries contain.

        None if they differ.
        """
        if not self.is_complete or now.left or now.input != self._input:
            return None
        if self._frames.keys() != now.frames.keys() or not all(
            self._frames[name].is_equal_to_frame(frame) for name, frame in now.frames.items()
        ):
            return None
        frames = {
            name: replace(frame, messages=(), calls=frame.list_turn_calls())
            for name, frame in now.frames.items()
        }
        return Brief(state=replace(now, input=None, frames=frames), lengths=self._lengths())

    def restore(self, state: Continuation, lengths: Lengths) -> Continuation | None:
        """Return the full state of a brief one. None if the entries have another number of messages or calls."""
        if not self.is_complete or self._lengths() != lengths:
            return None
        frames = {name: self._frames[name].complete(frame) for name, frame in state.frames.items()}
        return replace(state, input=self._input, frames=frames)

    def _lengths(self) -> Lengths:
        return {name: (len(talk.messages), len(talk.calls)) for name, talk in self._frames.items()}

    def _consume(self, event: events.Event) -> None:
        if type(event) in _CALL_EVENTS:
            change: Any = event
            if change.call:  # else a gate of the frame, or its model is called again
                self._frames[change.frame].change_call(change.call, change)
            return
        match event:
            case events.ModelReplied():
                talk = self._frames[event.frame]
                if event.heard:
                    talk.messages += self._undelivered[: event.heard]
                    del self._undelivered[: event.heard]
                talk.reply(event)
            case events.RunStarted():
                self._input = event.input
            case events.FrameOpened():
                self._frames[event.frame] = _Conversation(event)
                if event.parent is not None and event.call is not None:
                    self._frames[event.parent].change_call(event.call, event)
            case events.FrameClosed():
                closed = self._frames.pop(event.frame)
                if closed.parent is not None and closed.call is not None:
                    self._frames[closed.parent].change_call(closed.call, event)
            case events.MessageReceived():
                self._undelivered.append(make_person_message(event.by, event.text))
            case events.AgentChanged():
                self._frames[event.frame].change_turn(make_stricter, event.writes)
            case events.Retried():
                for frame in self._frames.values():
                    frame.change_turn(restore_call, event)
            case events.Forked() | events.Imported() | events.Compacted():
                # The messages are of another run, permissions are lost, or a summary outlasts the entries before it.
                self.is_complete = False


class _Conversation:
    """The conversation of one frame: its messages, the calls of earlier turns, and the calls of its open turn."""

    def __init__(self, event: events.FrameOpened) -> None:
        self.parent = event.parent
        self.call = event.call
        self.messages: list[dict[str, Any]] = [make_input_message(event.input)]
        self.calls: list[Call] = []
        self._turn = 0
        self._open: dict[str, Call] = {}
        self._unsettled = 0

    def is_equal_to_frame(self, frame: Frame) -> bool:
        """Say whether these messages and calls equal the frame's.

        If so, keep the frame's own objects for a faster next check.
        """
        messages, calls = list(frame.messages), list(frame.calls)
        del calls[len(calls) - len(frame.list_turn_calls()) :]
        if self.messages != messages or self.calls != calls:
            return False
        self.messages, self.calls = messages, calls
        return True

    def complete(self, frame: Frame) -> Frame:
        return replace(frame, messages=tuple(self.messages), calls=tuple(self.calls) + frame.calls)

    def reply(self, event: events.ModelReplied) -> None:
        self.calls += self._open.values()
        self._turn += 1
        calls = propose_calls(event, self._turn)
        self._open = {call.id: call for call in calls}
        self._unsettled = len(calls)
        self.messages.append(make_reply_message(event, calls))

    def change_call(self, call_id: str, event: CallChange) -> None:
        """Change a call of the open turn. When the last call is settled, add all results to the messages."""
        call = self._open[call_id] = call_after(self._open[call_id], event)
        if call.state in SETTLED:
            self._unsettled -= 1
            if not self._unsettled:
                self.messages.append(make_results_message(self._open.values()))

    def change_turn(self, change: Callable[[Call, Any], Call], argument: object) -> None:
        self._open = {name: change(call, argument) for name, call in self._open.items()}


@cache
def _make_continuation_adapter() -> TypeAdapter[Continuation]:
    return TypeAdapter(Continuation)


@cache
def _make_lengths_adapter() -> TypeAdapter[Lengths]:
    return TypeAdapter(Lengths)
