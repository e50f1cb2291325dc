"""Writes entries and continuations as JSON text, with one schema number for both, and reads them back.

The text is ASCII, so it has no character that a database column would refuse or change. Fields with their default
value are left out, so defaults belong to the schema. An engineer who changes one raises SCHEMA and has `upcasters`
write the old default into older documents.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from runtime.core.call_options import CallOptions
from runtime.core.continuation import Continuation, Frame
from runtime.core.digest import ENCLOSED_DEPTH, require_json
from runtime.core.documents.compression import SCHEMA as COMPRESSED
from runtime.core.documents.compression import plain_text
from runtime.core.documents.conversations import (
    CONSEQUENCES,
    DECISIONS,
    DIALOGUE,
    LATER,
    ORIGINS,
    PROMPTS,
    REPLIES,
    REVIEWS,
    Conversations,
    Told,
)
from runtime.core.documents.references import resolved
from runtime.core.documents.upcasters import upcast
from runtime.core.enums import GateKind, Verdict
from runtime.core.errors import (
    IllegalTransition,
    NewerSchema,
    NotJson,
    UnknownSubject,
    Unreadable,
)
from runtime.core.events import (
    EVENT_TYPES,
    AgentChanged,
    AnswerDropped,
    BlobRef,
    CallAdmitted,
    CallPreviewed,
    Event,
    Forked,
    FrameOpened,
    GateDecided,
    GateOpened,
    MemorySummarised,
    MessageReceived,
    ModelReplied,
    OutcomeArrived,
    QuestionAnswered,
    QuestionAsked,
    QuestionFailed,
    Resumed,
    RetryScheduled,
    RunStarted,
    TaggedEvent,
    ToolReturned,
)
from runtime.core.fast_replace import replace
from runtime.core.machine.forks import state_of
from runtime.core.machine.replay import Entry, initial, step

SCHEMA = 5
HISTORY = {
    1: "frames, calls and approval gates",
    2: "gates that hold a whole frame",
    3: "messages of people, and calls that wait for a time or an event",
    4: "failed runs that are tried again, and outcomes that arrive late",
    5: "fields that have their default are left out, and a reply what its event says anyway",
    6: "a long run's continuation refers to its entries, which are of schema 5",
    7: "a long run's continuation leaves out what its entries tell, which are of schema 5",
    8: "a short entry is compressed; it contains one of schema 5",
    9: "denials that stand, and answers instead of calls: an entry with one, and a continuation that has any",
    10: "calls that were judged by their arguments, previewed or edited: an entry with one, or a continuation",
    11: "requests for changes, questions, calls that an allowance passed, and versions that were decided for all runs",
    12: "runs that a schedule started, messages of reviewers, late answers, waits for rate limits, plans, memories,"
    " replies that were cut off, held answers, credentials, results in the object store",
    13: "versions of prompts, items of a list, and messages of agents to the requester",
    14: "replies that a person gave in a fork, and those whose calls are not all open at once",
    15: "runs that were resumed with a reason, and edits with the preview that their person saw",
}
REFERRING = 6
BRIEF = 7
# The beginning of each text that `decode_entry` can read, as a regular expression of Postgres and of Python.
READABLE = rf'^\{{"schema": ?({"|".join(map(str, (*range(1, SCHEMA + 1), COMPRESSED, *LATER)))}),'
TextOf = Callable[[int], str]  # the entry text at a position; raises LookupError

_BEGINNING = f'{{"schema":{SCHEMA},'
_REFERS = f'{{"schema":{REFERRING},'
_BRIEF = f'{{"schema":{BRIEF},'
# As SCHEMA, and never read by releases that do not know them.
_LATER = tuple(f'{{"schema":{number},' for number in LATER)
_LONG_NUMBER = re.compile(r"[:,\[\-][0-9]{16}")


def prepare() -> None:
    """Build what reads and writes documents, before a process is ready: else its first runs would wait for it."""
    _entries()
    _continuations()
    for kind in EVENT_TYPES:
        _one(kind)


def encode_entry(entry: Entry) -> str:
    """Write an entry. Raises NotJson if an event carries an invalid value.

    `{"schema", "at", "events": [{"type", …}]}`
    """
    events = ",".join(_encoded(entry.events))
    number = max(map(_number, entry.events), default=SCHEMA)
    return f'{{"schema":{number},"at":"{entry.at.isoformat()}","events":[{events}]}}'


def require_encodable(event: Event) -> None:
    """Raise NotJson if an entry cannot carry this event."""
    _encoded((event,))


def decode_entry(text: str) -> Entry:
    """Read an entry from its text, compressed or not. Raises Unreadable or NewerSchema."""
    text = plain_text(text)
    try:
        if text.startswith((_BEGINNING, *_LATER)):
            stored = _entries().validate_json(text)
            return Entry(at=stored.at, events=stored.events)
        document = _load(text)
        return Entry(
            at=datetime.fromisoformat(document["at"]),
            events=_events().validate_python(document["events"]),
        )
    except (KeyError, TypeError, ValueError) as exc:
        raise Unreadable(f"not an entry: {exc}") from exc


def no_entries(position: int) -> str:
    """Raise LookupError: a continuation that leaves nothing out needs no entries."""
    raise LookupError(position)


def encode_continuation(now: Continuation, told: Told | None = None) -> str:
    """Write a continuation as JSON text. `told` counts the messages and calls that a brief state leaves out.

    A brief one keeps its number, because its entries are read with it.
    """
    number = _number_of(now) if told is None else BRIEF
    left_out = "" if told is None else f'"told":{json.dumps(told)},'
    found = _continuations().dump_json(now, exclude_defaults=True, ensure_ascii=True)
    return f'{{"schema":{number},{left_out}{found.decode()[1:]}'


def decode_continuation(
    text: str,
    text_of: TextOf = no_entries,
    conversations: Conversations | None = None,
) -> Continuation:
    """Read a continuation of this or an older schema. Omitted parts are read from the run's entries.

    If the document leaves out everything its entries say, they are read into `conversations`, which must be empty or
    have read the first ones. Raises Unreadable or NewerSchema.
    """
    try:
        if text.startswith(_BEGINNING):
            return _continuations().validate_json(text)
        if text.startswith(_LATER):
            return replace(_continuations().validate_json(text), schema=SCHEMA)
        if text.startswith(_BRIEF):
            return _restored(text, text_of, conversations or Conversations())
        if text.startswith(_REFERS):
            entry_of = cache(lambda position: decode_entry(text_of(position)))
            return replace(resolved(_continuations().validate_json(text), entry_of), schema=SCHEMA)
        return _continuations().validate_python({**upcast(_load(text)), "schema": SCHEMA})
    except ValidationError as exc:
        raise Unreadable(f"not a continuation: {exc}") from exc


def document_of(continuation: Continuation) -> dict[str, Any]:
    """Return the document with every field, for readers."""
    document: dict[str, Any] = _continuations().dump_python(continuation, mode="json")
    return document


def documents_of(events: tuple[Event, ...]) -> list[dict[str, Any]]:
    """Return the events with every field, for readers."""
    return list(_events().dump_python(events, mode="json"))


def _restored(text: str, text_of: TextOf, conversations: Conversations) -> Continuation:
    """Return the whole state. If reading the entries is not enough, they are folded."""
    document = json.loads(text)
    told = document.pop("told")
    state = _continuations().validate_python({**document, "schema": SCHEMA})
    last = state.position
    if conversations.position > last:
        conversations.reset()
    try:
        for position in range(conversations.position + 1, last + 1):
            conversations.read(text_of(position))
        found = conversations.restored(state, told)
        if found is not None:
            return found
        now = initial(state.run)
        for position in range(1, last + 1):
            entry = decode_entry(text_of(position))
            now = step(now, entry.events, head=state.head, at=entry.at)
    except (LookupError, IllegalTransition, UnknownSubject) as exc:
        raise Unreadable(f"its entries lack its omitted parts ({exc})") from exc
    return now


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """A stored entry of the present schema."""

    schema: int
    at: datetime
    events: tuple[TaggedEvent, ...]


def _encoded(events: tuple[Event, ...]) -> list[str]:
    """Return the JSON of each event. Values are checked one by one only if the JSON contains a suspicious escape."""
    try:
        texts = [_text(event) for event in events]
    except PydanticSerializationError as exc:
        with suppress(UnicodeEncodeError):  # it is in the name of a field
            _require(events)
        raise NotJson("events", "contains half of a surrogate pair") from exc
    if any(map(_is_suspect, texts)):
        _require(events)
    return texts


def _text(event: Event) -> str:
    kind: Any = type(event)
    found = _one(kind).dump_json((event,), exclude_defaults=True, ensure_ascii=True)
    fields = found.decode()[2:-2]  # within `[{` and `}]`
    return f'{{"type":"{event.type}",{fields}}}' if fields else f'{{"type":"{event.type}"}}'


def _number(event: Event) -> int:
    """Return the schema of an entry with this event: earlier releases must not read it."""
    match event:
        case ModelReplied():
            return REPLIES if event.given_by or event.at_once else SCHEMA
        case Forked():
            least = SCHEMA if event.change is None else ORIGINS
            with suppress(Unreadable):  # the reducer reports that
                return max(least, _number_of(state_of(event)))
            return least
        case RunStarted() if event.makers or event.thread is not None:
            return ORIGINS
        case MessageReceived() if event.reviewer or event.cuts:
            return ORIGINS
        case AnswerDropped() | MemorySummarised():
            return ORIGINS
        case Resumed() if event.reason:
            return CONSEQUENCES
        case RetryScheduled() if event.limited or event.tokens:
            return ORIGINS
        case RetryScheduled(cause="credential" | "message"):
            return ORIGINS
        case ToolReturned() | GateDecided() if event.answer:
            return ORIGINS
        case ToolReturned() | GateDecided() | OutcomeArrived() if _is_outside(event.stored):
            return ORIGINS
        case GateOpened(kind=GateKind.QUESTION):
            return DIALOGUE
        case QuestionAsked() | QuestionAnswered() | QuestionFailed():
            return DIALOGUE
        case GateDecided(verdict=Verdict.REQUEST_CHANGES):
            return DIALOGUE
        case GateDecided() if event.allowance is not None:
            return DIALOGUE
        case GateDecided(verdict=Verdict.EDIT):
            bound = event.edit is not None and event.edit.preview is not None
            return CONSEQUENCES if bound else REVIEWS
        case GateDecided() if event.stands or event.verdict is Verdict.ANSWER:
            return DECISIONS
        case FrameOpened() if event.item:
            return PROMPTS
        case FrameOpened() | AgentChanged() if event.pinned is not None:
            return PROMPTS
        case AgentChanged() if event.by:
            return DIALOGUE
        case CallPreviewed():
            return REVIEWS
        case CallAdmitted() | GateOpened() if event.terms is not None:
            return _number_of_terms(event.terms)
    return SCHEMA


def _number_of(now: Continuation) -> int:
    """Return the schema of a whole continuation."""
    frames = (*now.frames.values(), *now.left.values())
    calls = [call for frame in frames for call in frame.calls]
    if any(frame.at_once or _has_given_reply(frame) for frame in frames):
        return REPLIES
    terms = max((_number_of_terms(call.terms) for call in calls if call.terms), default=SCHEMA)
    if terms == PROMPTS or any(frame.pinned or frame.item for frame in frames):
        return PROMPTS
    if now.reviewers or now.thread is not None or now.memory:
        return ORIGINS
    if terms == ORIGINS or any(map(_is_new, frames)) or any(call.credential for call in calls):
        return ORIGINS
    if now.questions or any(denial.changes for denial in now.denials.values()):
        return DIALOGUE
    if any(gate.kind is GateKind.QUESTION for gate in now.pending):
        return DIALOGUE
    previewed = any(call.preview or call.shown for call in calls)
    if terms == REVIEWS or previewed or now.edits or any(call.edited for call in calls):
        return REVIEWS
    return DECISIONS if now.denials or any(call.answered for call in calls) else SCHEMA


def _has_given_reply(frame: Frame) -> bool:
    return frame.given is not None or any("given_by" in one for one in frame.messages)


def _is_new(frame: Frame) -> bool:
    """Tell whether a frame holds something of ORIGINS, besides the terms of its calls."""
    if frame.todo or frame.cut or (frame.outage and frame.outage.tries):
        return True
    if any(_is_outside(call.stored) for call in frame.calls):
        return True
    return any(call.changed_by or (call.edited and call.edited.of_fork) for call in frame.calls)


def _number_of_terms(terms: CallOptions) -> int:
    if terms.tells:
        return PROMPTS
    if terms.plan or terms.answers:
        return ORIGINS
    return SCHEMA if terms.risk is None else REVIEWS


def _is_outside(stored: BlobRef | None) -> bool:
    return stored is not None and stored.outside


def _is_suspect(text: str) -> bool:
    """Say whether compact JSON may have values that `require_json` refuses, perhaps only inside a text."""
    deep = text.count("{") + text.count("[") >= ENCLOSED_DEPTH
    escaped = "\\u0000" in text or "NaN" in text or "Infinity" in text
    return deep or escaped or bool(_LONG_NUMBER.search(text))


def _require(events: tuple[Event, ...]) -> None:
    require_json(documents_of(events), "events", depth=ENCLOSED_DEPTH)


def _load(text: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except ValueError as exc:
        raise Unreadable(f"not JSON: {exc}") from exc
    if not isinstance(document, dict) or not isinstance(document.get("schema"), int):
        raise Unreadable("no schema number")
    if document["schema"] > SCHEMA and document["schema"] not in LATER:
        raise NewerSchema(document["schema"])
    return document


# By default NaN and infinities become null, and `require_json` would not see them.
_CONFIG = ConfigDict(ser_json_inf_nan="constants")


@cache
def _events() -> TypeAdapter[tuple[Event, ...]]:
    return TypeAdapter(tuple[TaggedEvent, ...], config=_CONFIG)


@cache
def _entries() -> TypeAdapter[_Stored]:
    return TypeAdapter(_Stored)


@cache
def _one(kind: Any) -> TypeAdapter[Any]:
    alone: Any = tuple[kind]
    return TypeAdapter(alone, config=_CONFIG)


@cache
def _continuations() -> TypeAdapter[Continuation]:
    return TypeAdapter(Continuation)
