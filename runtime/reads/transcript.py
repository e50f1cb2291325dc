"""The transcript of a run: its frames, each with its calls and messages, and the inquiries of people about a call.

The caller has checked that the run may be read.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from uuid import UUID

from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef

from runtime.core.run.continuation import Denial, RunStatus
from runtime.core.run.events import PinnedPrompt
from runtime.core.values.enums import CallState
from runtime.errors import ObjectStoreDown
from runtime.keyring import sealing
from runtime.models import Run, Signal
from runtime.reads.journal import Beginning, Remaining, read_remaining
from runtime.reads.redaction import redact
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.fold import Ending, Origin, RunPause, Trace, fold
from runtime.reads.trace.frames import FrameMessage, FrameRecord, Retry
from runtime.reads.trace.span import InquiryRecord
from runtime.store.tables.signals import INQUIRY

_SHOWN = (CallState.GATED, CallState.RETURNED)
_EARLY = datetime.min.replace(tzinfo=UTC)  # of a message that a fork was begun with


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentMessage:
    """A message of an agent; `text` is None while it waits for its release. `at` is when it was released.

    `changed_by` is the person who replaced it in a fork, empty if none did.
    """

    frame: str
    call: str
    agent: str
    text: str | None
    at: datetime | None
    changed_by: str


def list_messages(calls: Iterable[CallRecord]) -> tuple[AgentMessage, ...]:
    """Return the messages among these calls, those that wait last. A message that was not released is not there."""
    messages = []
    for call in calls:
        if call.tells and call.state in _SHOWN:
            released = call.state is CallState.RETURNED
            ends = [span.end for span in call.spans if span.end is not None]
            message = AgentMessage(
                frame=call.frame,
                call=call.id,
                agent=call.agent,
                text=str(call.result) if released else None,
                at=max(ends, default=None) if released else None,
                changed_by=call.changed_by,
            )
            messages.append(message)
    return tuple(sorted(messages, key=lambda message: (message.text is None, message.at or _EARLY)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """`roots` is the root frame, once it was opened. `unreadable` are entries after which the rest is left out.

    `beginning` says which entries of a long run were removed, None if the journal is whole. `is_out_of_reach` says
    that they are in the archive, which does not answer.
    """

    roots: tuple[FrameRecord, ...]
    unreadable: tuple[int, ...]
    ending: Ending | None = None
    origin: Origin | None = None
    pause: RunPause | None = None
    denials: Mapping[str, Denial] = field(default_factory=dict)
    inquiries: tuple[InquiryRecord, ...] = ()
    beginning: Beginning | None = None
    is_out_of_reach: bool = False

    def frames(self) -> Iterator[FrameRecord]:
        """Yield the frames, a parent before its children."""
        stack = list(reversed(self.roots))
        while stack:
            frame = stack.pop()
            yield frame
            stack.extend(reversed(frame.children.values()))

    @property
    def plans(self) -> tuple[FrameRecord, ...]:
        """The frames whose models keep a plan."""
        return tuple(frame for frame in self.frames() if frame.todo)

    @property
    def agent_messages(self) -> tuple[AgentMessage, ...]:
        """The messages of agents to the requester."""
        return list_messages(call for frame in self.frames() for call in frame.calls)

    @property
    def prompts(self) -> tuple[PinnedPrompt, ...]:
        """The versions of prompts that the frames use, each once."""
        by_version = {
            (prompt.name, prompt.number): prompt
            for frame in self.frames()
            if (prompt := frame.prompt)
        }
        return tuple(by_version.values())

    def calls(self) -> Iterator[CallRecord]:
        """Yield the calls that are not delegations; the calls of a sub-agent replace its delegation."""
        for root in self.roots:
            yield from _walk_leaves(root)

    def list_messages(self) -> list[FrameMessage]:
        """Return all messages of the run in order."""
        return sorted((m for f in self.frames() for m in f.messages), key=lambda m: m.order)

    def frame(self, frame: str) -> FrameRecord | None:
        """Return a frame; None if the journal does not mention it."""
        return next((record for record in self.frames() if record.id == frame), None)

    @property
    def failed(self) -> tuple[CallRecord, ...]:
        """The calls whose last attempt failed."""
        return tuple(call for call in self.calls() if call.state is CallState.FAILED)

    @property
    def waiting(self) -> tuple[CallRecord, ...]:
        """The calls that wait for a time or an event."""
        calls = (call for frame in self.frames() for call in frame.calls)
        return tuple(call for call in calls if call.state is CallState.WAITING)

    @property
    def outage(self) -> Retry | None:
        """The retry of a model whose provider does not answer; None for no outage."""
        retries = (frame.retry for frame in self.frames() if frame.retry)
        return next((retry for retry in retries if retry.since is not None), None)

    @property
    def next_try(self) -> datetime | None:
        """The time of the next attempt of any call or model call; None if there is none."""
        calls = [call for frame in self.frames() for call in frame.calls]
        waits = [call.until for call in calls if call.state is CallState.RETRYING]
        waits += [frame.retry.until for frame in self.frames() if frame.retry]
        return min((until for until in waits if until is not None), default=None)

    def list_denied_turns(self, tool: str) -> frozenset[str]:
        """Return the turns in which this tool was denied and which count towards the end of the run."""
        denials = (denial for denial in self.denials.values() if denial.tool == tool)
        return frozenset(denial.turn for denial in denials if denial.counts)

    def is_of_item(self, frame: str) -> bool:
        """Tell whether the frame works on an item of a list: denials there end the item, not the run."""
        return any(ancestor.is_item and ancestor.is_above(frame) for ancestor in self.frames())

    def call(self, frame: str, call: str) -> CallRecord | None:
        """Return a call; None if the journal does not mention it."""
        matches = (c for f in self.frames() if f.id == frame for c in f.calls if c.id == call)
        return next(matches, None)


def read_transcript(run: UUID, *, provider_errors: bool = False) -> Transcript:
    """Read the whole journal of a run. The caller has checked access, and that `provider_errors` is for an admin."""
    return build_transcript(fold(read_remaining(run), provider_errors=provider_errors))


def read_reachable_transcript(run: UUID, *, provider_errors: bool = False) -> Transcript:
    """Do the same, without entries if they are in the archive and it does not answer."""
    try:
        return read_transcript(run, provider_errors=provider_errors)
    except ObjectStoreDown:
        empty = build_transcript(fold(Remaining(run=run, lines=())))
        return replace(empty, is_out_of_reach=True)


def build_transcript(trace: Trace) -> Transcript:
    """Return the transcript of a folded journal."""
    return Transcript(
        roots=tuple(trace.roots),
        unreadable=tuple(trace.unreadable),
        ending=trace.ending,
        origin=trace.origin,
        pause=trace.pause,
        denials=trace.denials,
        inquiries=tuple(trace.inquiries.values()),
        beginning=trace.beginning,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """`settled` and `open` calls in tree order, without the call itself and the delegations above it.

    `path` are the frames above the call, from the root, and its own.
    """

    settled: tuple[CallRecord, ...]
    open: tuple[CallRecord, ...]
    path: tuple[FrameRecord, ...]

    @property
    def has_plans(self) -> bool:
        """Whether an agent of the path keeps a plan, or has declared steps."""
        return any(frame.todo or frame.plan is not None for frame in self.path)


def build_call_context(transcript: Transcript, *, frame: str, call: str) -> CallContext:
    """Return the context of `call` of `frame`."""
    path = tuple(f for f in transcript.frames() if f.is_above(frame))
    on_path = {f.id for f in path}
    calls = [
        c
        for f in transcript.frames()
        for c in f.calls
        if (f.id, c.id) != (frame, call) and c.child not in on_path
    ]
    return CallContext(
        settled=tuple(c for c in calls if c.is_settled),
        open=tuple(c for c in calls if not c.is_settled),
        path=path,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreceivedInquiries:
    """Whether the run is quarantined, and the stored inquiries that no worker has received."""

    quarantined: bool
    bodies: tuple[str, ...]


def read_unreceived(run: UUID) -> UnreceivedInquiries:
    """Read both with one query."""
    sent = Signal.objects.filter(run=OuterRef("pk"), kind=INQUIRY).order_by("id").values("body")
    rows = Run.objects.filter(id=run).annotate(sent=ArraySubquery(sent))
    status, bodies = rows.values_list("status", "sent").first() or ("", [])
    return UnreceivedInquiries(quarantined=status == RunStatus.QUARANTINED, bodies=tuple(bodies))


def list_inquiries(
    transcript: Transcript, sent: UnreceivedInquiries, gate: UUID, *, unsealed: bool = False
) -> tuple[InquiryRecord, ...]:
    """Return the inquiries about the call at this gate, oldest first; with `unsealed` as its reviewers read them."""
    received = [
        replace(inquiry, answer=sealing.text_for_reviewers(inquiry.sealed))
        if unsealed and inquiry.sealed
        else inquiry
        for inquiry in transcript.inquiries
        if inquiry.gate == gate
    ]
    ids = {inquiry.id for inquiry in transcript.inquiries}
    waiting = []
    for body in sent.bodies:
        try:
            document = json.loads(body)
            inquiry = InquiryRecord(
                id=UUID(document["question"]),
                gate=UUID(document["gate"]),
                by=str(document["by"]),
                text=redact(str(document["text"])),
            )
        except (ValueError, KeyError, TypeError):
            continue  # the worker reports it
        if inquiry.gate == gate and inquiry.id not in ids:
            waiting.append(inquiry)
    return (*received, *waiting)


def _walk_leaves(frame: FrameRecord) -> Iterator[CallRecord]:
    for call in frame.calls:
        if call.id not in frame.children:
            yield call
        else:
            yield from _walk_leaves(frame.children[call.id])
