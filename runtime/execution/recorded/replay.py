"""Replays a recorded run with the code and the policy of this process, and says where it would go another way.

Nothing is executed and nothing is stored. The outcomes of calls and the decisions of people are those of the record.
A script is asked again. Any other model answers differently each time, so its recorded replies stand, as do those that
a person gave in a fork.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import singledispatchmethod
from typing import Any
from uuid import UUID

from runtime.core.commands import CallModel
from runtime.core.continuation import CallState, Continuation
from runtime.core.documents.blobs import Blob, InlinedMessages, value_of
from runtime.core.enums import EffectClass, GateKind
from runtime.core.events import (
    CallAdmitted,
    CallRefused,
    Event,
    FrameOpened,
    GateOpened,
    ModelReplied,
)
from runtime.core.machine.reducer import evolve
from runtime.core.machine.replay import step
from runtime.errors import InvalidInput, UnknownAgent
from runtime.execution.admission.admit import Admission, Foreseen
from runtime.execution.effects.requests import request_for
from runtime.keyring import held, sealing
from runtime.ports.approvals import Approvals
from runtime.ports.effects import EffectHandler, ModelAnswer, ModelRequest, Outcome
from runtime.queries.redaction import redact
from runtime.store import archive
from runtime.store.pool import Connection
from runtime.store.tables import blobs, journal

_BEFORE_TIMES = datetime.min.replace(tzinfo=UTC)  # of a frame that names none, and no prompt
_ASKED_ABOUT = (GateKind.APPROVAL, GateKind.QUESTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A step that would now go another way. `path` goes from the run's agent to the agent or tool of the step."""

    position: int
    path: tuple[str, ...]
    recorded: str
    today: str


@dataclass(slots=True, kw_only=True)
class Replay:
    """The divergences of a run in order, and the numbers of steps compared. `kept` replies are those of the record.

    `begins` is the first entry that the run still has.
    """

    divergences: list[Divergence] = field(default_factory=list)
    agents: int = 0
    replies: int = 0
    kept: int = 0
    calls: int = 0
    begins: int = 1

    @property
    def compared(self) -> int:
        """The number of steps that were compared, or whose reply stood."""
        return self.agents + self.replies + self.kept + self.calls


def replay(
    connection: Connection,
    run: UUID,
    *,
    handler: EffectHandler,
    approvals: Approvals,
    is_scripted: Callable[[str], bool],
    clock: Callable[[], datetime],
) -> Replay:
    """Replay the journal of a run, also an archived one. `is_scripted` says whether a script answers for an agent.

    Raises Tampered, KeyMissing, NewerSchema or ObjectStoreDown for a journal that cannot be read. A run without entries
    has no steps.
    """
    admission = Admission(handler=handler, approvals=approvals, clock=clock)
    kept = archive.read(connection, run)

    def fetch(digest: str) -> Any:
        if kept is None:
            return blobs.fetch(connection, digest)
        return value_of(Blob(digest=digest, text=kept.contents[digest]))

    inlined = InlinedMessages(
        fetch, lambda memory: blobs.remembered(connection, [one.digest for one in memory])
    )
    replayer = _Replayer(handler, admission, inlined, is_scripted)
    history = journal.history(connection, run) if kept is None else kept.history()
    now = history.start
    replayer.found.begins = history.mark.position + 1
    for sealed, entry in history.entries:
        before = now
        for event in entry.events:
            for recorded, today, path in replayer.compare(event, before):
                found = Divergence(
                    position=sealed.position, path=path, recorded=recorded, today=today
                )
                replayer.found.divergences.append(found)
            before = evolve(before, event)
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
    return replayer.found


Difference = tuple[str, str, tuple[str, ...]]  # recorded, today, path


class _Replayer:
    """Compares recorded events with those that this process would write in the same state."""

    def __init__(
        self,
        handler: EffectHandler,
        admission: Admission,
        inlined: InlinedMessages,
        is_scripted: Callable[[str], bool],
    ) -> None:
        self._handler, self._admission = handler, admission
        self._inlined, self._is_scripted = inlined, is_scripted
        self.found = Replay()

    @singledispatchmethod
    def compare(self, event: Event, now: Continuation) -> Iterator[Difference]:
        """Yield the differences of one event, which was recorded in the state `now`."""
        yield from ()

    @compare.register
    def _opened(self, event: FrameOpened, now: Continuation) -> Iterator[Difference]:
        self.found.agents += 1
        parents = () if event.parent is None else now.path(event.parent)
        path = (*parents, event.agent)
        try:
            ours = self._handler.agent(event.agent)
        except UnknownAgent:
            yield "the agent started", "there is no such agent", path
            return
        at = event.pinned.at if event.pinned else event.at or _BEFORE_TIMES
        try:
            told = self._handler.instruct(event.agent, event.input, at=at).text
        except InvalidInput as exc:
            yield "instructions made of its input", f"none: {exc}", path
            return
        if told != event.instructions:
            yield "instructions made of its input", "others of the same input", path
        elif not told and ours.prompt != event.prompt:
            yield "its instructions", "other instructions", path

    @compare.register
    def _replied(self, event: ModelReplied, now: Continuation) -> Iterator[Difference]:
        agent = now.frame(event.frame).agent
        if not self._known(agent):
            return
        if event.given_by or not self._is_scripted(agent):
            self.found.kept += 1
            return
        self.found.replies += 1
        today = self._ask(now, event.frame)
        if isinstance(today, str):
            yield _said(event), today, now.path(event.frame)
        elif _opened(today) != _opened(event):
            yield _said(event), _said(today), now.path(event.frame)

    @compare.register
    def _admitted(self, event: CallAdmitted, now: Continuation) -> Iterator[Difference]:
        yield from self._call(now, event, Foreseen(effect=event.terms.effect))

    @compare.register
    def _refused(self, event: CallRefused, now: Continuation) -> Iterator[Difference]:
        preview = now.call(event.frame, event.call).preview
        if (
            preview is None or not preview.refused
        ):  # a precondition depends on the world of that day
            yield from self._call(now, event, Foreseen(refused=event.reason))

    @compare.register
    def _gated(self, event: GateOpened, now: Continuation) -> Iterator[Difference]:
        if event.call and event.terms is not None and event.kind in _ASKED_ABOUT:
            yield from self._call(now, event, Foreseen(asks=True, effect=event.terms.effect))

    def _call(
        self,
        now: Continuation,
        event: CallAdmitted | CallRefused | GateOpened,
        recorded: Foreseen,
    ) -> Iterator[Difference]:
        call = now.call(event.frame, event.call)
        if call.state is not CallState.PROPOSED or not self._known(now.frame(event.frame).agent):
            return
        self.found.calls += 1
        today = self._admission.foresee(now, event.frame, event.call)
        if (bool(today.refused), today.asks, today.effect) != (
            bool(recorded.refused),
            recorded.asks,
            recorded.effect,
        ):
            yield _admission(recorded), _admission(today), now.path(event.frame, call.tool)

    def _known(self, agent: str) -> bool:
        try:
            self._handler.agent(agent)
        except UnknownAgent:
            return False
        return True

    def _ask(self, now: Continuation, frame: str) -> ModelAnswer | str:
        """Return the reply of a script today, or why there is none."""
        request = request_for(now, CallModel(frame=frame), self._inlined, {})
        assert isinstance(request, ModelRequest)
        outcomes: list[Outcome] = []
        self._handler.start_model_call(request, outcomes.append)
        (outcome,) = outcomes  # a script has replied on return
        if isinstance(outcome, ModelAnswer):
            return outcome
        return f"no reply: {getattr(outcome, 'error', 'it waits')}"


def _opened(reply: ModelReplied | ModelAnswer) -> str:
    """Say a reply with its secrets, to be compared alone: two seals of one value differ."""
    calls = [(call.tool, sealing.opened_args(call.tool, call.args)) for call in reply.calls]
    return _in_words(held.open_text(reply.text), calls, reply.output)


def _said(reply: ModelReplied | ModelAnswer) -> str:
    """Say a reply in words, without its secrets."""
    calls = [(call.tool, redact(call.args)) for call in reply.calls]
    return _in_words(redact(reply.text), calls, reply.output)


def _in_words(text: str, calls: Sequence[tuple[str, Any]], output: Any) -> str:
    """Say everything in a reply that the run depends on."""
    said = [f"calls {tool} with {args}" for tool, args in calls]
    if output is not None:
        said.append(f"ends with {output}")
    elif text:
        said.append(f"says {text!r}")
    return " and ".join(said) or "says nothing"


def _admission(found: Foreseen) -> str:
    if found.refused:
        return f"refused: {found.refused}"
    asked = "waits for a person" if found.asks else "starts without a person"
    return f"{asked}, effect class {found.effect or EffectClass.WRITE}"
