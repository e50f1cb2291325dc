"""The transcript of a run: its frames, each with its calls and messages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from runtime.core.run.continuation import Denial
from runtime.core.run.events import PinnedPrompt
from runtime.core.values.enums import CallState
from runtime.errors import ObjectStoreDown
from runtime.queries.journal import Beginning, Remaining, remaining
from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.fold import Ending, Origin, RunPause, Trace, fold
from runtime.queries.spans.frames import FrameMessage, FrameRecord, Retry
from runtime.queries.spans.inquiries import InquiryRecord
from runtime.queries.transcript.agent_messages import AgentMessage, messages_of


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
    def told(self) -> tuple[AgentMessage, ...]:
        """The messages of agents to the requester."""
        return messages_of(call for frame in self.frames() for call in frame.calls)

    @property
    def prompts(self) -> tuple[PinnedPrompt, ...]:
        """The versions of prompts that the frames use, each once."""
        found = {(one.name, one.number): one for frame in self.frames() if (one := frame.prompt)}
        return tuple(found.values())

    def calls(self) -> Iterator[CallRecord]:
        """Yield the calls that are not delegations; the calls of a sub-agent replace its delegation."""
        for root in self.roots:
            yield from _leaves(root)

    def all_messages(self) -> list[FrameMessage]:
        """Return all messages of the run in order."""
        return sorted((m for f in self.frames() for m in f.messages), key=lambda m: m.order)

    def frame(self, frame: str) -> FrameRecord | None:
        """Return a frame; None if the journal does not mention it."""
        return next((found for found in self.frames() if found.id == frame), None)

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

    def denied(self, tool: str) -> frozenset[str]:
        """Return the turns in which this tool was denied and which count towards the end of the run."""
        denials = (denial for denial in self.denials.values() if denial.tool == tool)
        return frozenset(denial.turn for denial in denials if denial.counts)

    def is_of_item(self, frame: str) -> bool:
        """Tell whether the frame works on an item of a list: denials there end the item, not the run."""
        return any(one.is_item and one.is_above(frame) for one in self.frames())

    def call(self, frame: str, call: str) -> CallRecord | None:
        """Return a call; None if the journal does not mention it."""
        found = (c for f in self.frames() if f.id == frame for c in f.calls if c.id == call)
        return next(found, None)


def read_transcript(run: UUID, *, whole: bool = False) -> Transcript:
    """Read the whole journal of a run. The caller has checked that the run may be read, `whole` by an admin."""
    return transcript_of(fold(remaining(run), whole=whole))


def reachable_transcript(run: UUID, *, whole: bool = False) -> Transcript:
    """Do the same, without entries if they are in the archive and it does not answer."""
    try:
        return read_transcript(run, whole=whole)
    except ObjectStoreDown:
        empty = transcript_of(fold(Remaining(run=run, lines=())))
        return replace(empty, is_out_of_reach=True)


def transcript_of(trace: Trace) -> Transcript:
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


def _leaves(frame: FrameRecord) -> Iterator[CallRecord]:
    for call in frame.calls:
        if call.id not in frame.children:
            yield call
        else:
            yield from _leaves(frame.children[call.id])
