"""Replays a recorded run with the code and the policy of this process, and reports where it would diverge.

Nothing is executed and nothing is stored. The outcomes of calls and the decisions of people are those of the record.
A script is asked again. Any other model answers differently each time, so its recorded replies are used, as are those
that a person gave in a fork.

A replay that an admin gave to a worker is a job. A process performs one at a time, so that its runs keep most of the
processor.
"""

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import singledispatchmethod
from typing import Any
from uuid import UUID

from django.utils import timezone

from runtime.core.documents.blobs import Blob, InlinedMessages, decode_blob
from runtime.core.run.continuation import Continuation
from runtime.core.run.events import (
    AgentChanged,
    CallAdmitted,
    CallRefused,
    Event,
    Forked,
    FrameOpened,
    GateOpened,
    ModelReplied,
    Remembered,
)
from runtime.core.run.planning import CallModel
from runtime.core.run.reducer import evolve, step
from runtime.core.values.enums import CallState, EffectClass
from runtime.core.values.errors import NotJson
from runtime.core.values.verdicts import BEFORE_CALL
from runtime.errors import InvalidInput, Tampered, UnknownAgent
from runtime.execution.admission.admit import Admission, Foreseen
from runtime.execution.effects.perform import build_request, validate_outcome
from runtime.execution.jobs import runner
from runtime.execution.jobs.prompt_trials import RepliedWords, extract_reply
from runtime.execution.jobs.runner import MAX_SECONDS
from runtime.execution.worker import has_agent
from runtime.keyring import sealing
from runtime.ports.approvals import ApprovalPort
from runtime.ports.effects import EffectHandler, ModelAnswer, ModelRequest, Outcome
from runtime.reads.redaction import redact
from runtime.store import archived_runs, pool
from runtime.store.pool import Connection
from runtime.store.tables import blobs, journal, kill_switches
from runtime.store.tables.jobs import REPLAYS, ReplayRow
from runtime.store.tables.kill_switches import EVERY_AGENT

DRAINED = "The worker was stopped before the replay was done. Start another replay."
TOO_LONG = f"The replay took more than {MAX_SECONDS:.0f} seconds. The entries below were compared."
STOPPED = "An administrator stopped an agent of the run: its script is not asked."
EMPTY = "The run has no step that can be compared."
MAX_DIVERGENCES = 20  # that are stored
NOTE_SECONDS = 1.0  # between two notes of the number of entries compared
MAX_WORDS = 4_000  # of a step, in characters
MAX_KEPT = 50  # divergences; of the others only their number
_BEFORE_TIMES = datetime.min.replace(tzinfo=UTC)  # of a frame that names none, and no prompt
_SHOWN = ("begins", "until", "whole", "agents", "begun", "replies", "kept", "calls", "versions")
_replaying = threading.Lock()


class AgentStopped(Exception):
    """An administrator stopped the agent, so its script is not asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """A step that would now go another way. `path` goes from the run's agent to the agent or tool of the step.

    The step of a model also has both replies, if there is one today.
    """

    position: int
    path: tuple[str, ...]
    recorded: str
    today: str
    recorded_reply: RepliedWords | None = None
    today_reply: RepliedWords | None = None

    @property
    def document(self) -> dict[str, Any]:
        """The fields as JSON, without secrets. Of a long reply only the first MAX_WORDS characters are kept."""
        fields: dict[str, Any] = redact(asdict(self))
        for words, reply in (("recorded", "recorded_reply"), ("today", "today_reply")):
            if len(fields[words]) > MAX_WORDS:
                fields |= {words: f"{fields[words][:MAX_WORDS]}…", reply: None}
        return fields


@dataclass(slots=True, kw_only=True)
class Replay:
    """The first divergences of a run, and the numbers of steps compared. `kept` replies are those of the record.

    `differing` is the number of all divergences.
    `begins` is the first entry that the run still has, `until` the last one that was compared, of all if `whole`. The
    replay `was_stopped` at a script of a stopped agent.
    `begun` agents are those of the original of a fork, or of history that was removed: their instructions are not
    compared. `versions` are those of each agent, recorded last and today.
    """

    divergences: list[Divergence] = field(default_factory=list)
    differing: int = 0
    agents: int = 0
    begun: int = 0
    replies: int = 0
    kept: int = 0
    calls: int = 0
    begins: int = 1
    until: int = 0
    whole: bool = True
    was_stopped: bool = False
    versions: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """The number of steps that were compared, or whose recorded reply was used."""
        return self.agents + self.replies + self.kept + self.calls

    def add(self, divergences: Iterable[Divergence]) -> None:
        """Count these divergences, and keep them while there are few."""
        for divergence in divergences:
            self.differing += 1
            if len(self.divergences) < MAX_KEPT:
                self.divergences.append(divergence)

    def document(self, max_divergences: int) -> dict[str, Any]:
        """Return the fields as JSON, with at most so many divergences, and how many `more` there are."""
        fields = {name: getattr(self, name) for name in _SHOWN}
        return {
            **fields,
            "divergences": [step.document for step in self.divergences[:max_divergences]],
            "more": max(0, self.differing - max_divergences),
        }


def replay(
    connect: Callable[[], AbstractContextManager[Connection]],
    run: UUID,
    *,
    handler: EffectHandler,
    approvals: ApprovalPort,
    is_scripted: Callable[[str], bool],
    may_continue: Callable[[int, int], bool] = lambda compared, entries: True,
    stopped_agents: Callable[[], frozenset[str]] = frozenset,
) -> Replay:
    """Replay the journal of a run, also an archived one. `is_scripted` says whether a script answers for an agent.

    `connect` yields a connection for each read, so that none is held while a script is asked. `may_continue` gets the
    number of entries compared, and that of all. If it returns False, the replay ends early, and so it does before a
    script of one of the `stopped_agents`.

    Raises Tampered, KeyMissing, NewerSchema or ObjectStoreDown for a journal that cannot be read. A run without entries
    has no steps.
    """
    admission = Admission(handler=handler, approvals=approvals, clock=timezone.now)
    with connect() as connection:
        archived_run = archived_runs.read(connection, run)
        history = archived_run.history() if archived_run else journal.read_history(connection, run)
        entries = list(history.entries)
        if not entries and (archived_run := archived_runs.read(connection, run)):  # archived since
            history = archived_run.history()
            entries = list(history.entries)

    def fetch(digest: str) -> Any:
        nonlocal archived_run
        if archived_run is None:
            with connect() as connection:
                try:
                    return blobs.fetch(connection, digest)
                except Tampered:
                    archived_run = archived_runs.read(connection, run)
                    if archived_run is None:  # it was not archived since its entries were read
                        raise
        return decode_blob(Blob(digest=digest, text=archived_run.contents[digest]))

    def remembered(memory: Sequence[Remembered]) -> dict[str, str]:
        with connect() as connection:
            return blobs.read_remembered_texts(
                connection, [reference.digest for reference in memory]
            )

    inlined = InlinedMessages(fetch, remembered)
    replayer = _Replayer(handler, admission, inlined, is_scripted, stopped_agents)
    now, result = history.start, replayer.result
    result.begins = history.mark.position + 1
    replayer.begin_with(now)
    for compared, (sealed, entry) in enumerate(entries):
        if not may_continue(compared, len(entries)):
            result.whole = False
            break
        replayer.position, before = sealed.position, now
        try:
            for event in entry.events:
                result.add(replayer.compare(event, before))
                before = evolve(before, event)
                if isinstance(event, Forked):
                    replayer.begin_with(before)
        except AgentStopped:
            result.whole, result.was_stopped = False, True
            break
        now = step(now, entry.events, head=sealed.seal.mac, at=entry.at)
        result.until = sealed.position
    return result


def perform(
    job: UUID, *, handler: EffectHandler, approvals: ApprovalPort, drains: Callable[[], bool]
) -> None:
    """Perform a queued replay once, as `runner.perform` does; nothing while this process performs another one."""
    if not _replaying.acquire(blocking=False):
        return
    try:
        runner.perform(
            REPLAYS, job, handler, lambda row: _replay_queued(row, handler, approvals, drains)
        )
    finally:
        _replaying.release()


def _replay_queued(
    row: ReplayRow, handler: EffectHandler, approvals: ApprovalPort, drains: Callable[[], bool]
) -> str:
    """Replay the run, store the divergences, and return why the replay ended early, or an empty text."""
    with pool.pooled() as connection:
        REPLAYS.note(connection, row.id, host=socket.gethostname(), process=os.getpid())
    if not has_agent(handler, row.agent):
        return (
            f"No live worker has the agent {row.agent}. Start one that has it, then another replay."
        )
    until = time.monotonic() + MAX_SECONDS
    noted, compared_entries, of = float("-inf"), 0, 0

    def may_continue(compared: int, entries: int) -> bool:
        nonlocal noted, compared_entries, of
        compared_entries, of = compared, entries
        if (now := time.monotonic()) > noted + NOTE_SECONDS:
            noted = now
            with pool.pooled() as connection:
                REPLAYS.note(connection, row.id, compared=compared, entries=entries)
        return not drains() and now <= until

    def stopped_agents() -> frozenset[str]:
        with pool.pooled() as connection:
            return kill_switches.list_stopped_agents(connection)

    result = replay(
        pool.pooled,
        row.run,
        handler=handler,
        approvals=approvals,
        is_scripted=handler.is_scripted,
        may_continue=may_continue,
        stopped_agents=stopped_agents,
    )
    with pool.pooled() as connection:
        REPLAYS.save(
            connection,
            row.id,
            of=[row.run],
            compared=of if result.whole else compared_entries,
            entries=of,
            result=json.dumps(result.document(MAX_DIVERGENCES)),
        )
    if result.whole:
        return "" if result.compared else EMPTY
    if result.was_stopped:
        return STOPPED
    return DRAINED if drains() else TOO_LONG


class _Replayer:
    """Compares recorded events with those that this process would write in the same state."""

    def __init__(
        self,
        handler: EffectHandler,
        admission: Admission,
        inlined: InlinedMessages,
        is_scripted: Callable[[str], bool],
        stopped_agents: Callable[[], frozenset[str]],
    ) -> None:
        self._handler, self._admission = handler, admission
        self._inlined, self._is_scripted = inlined, is_scripted
        self._stopped_agents = stopped_agents
        self.result = Replay()
        self.position = 0

    def begin_with(self, now: Continuation) -> None:
        """Count the agents that have begun in this first state, and note their versions."""
        self.result.begun += len(now.frames)
        for frame in now.frames.values():
            if has_agent(self._handler, frame.agent):
                ours = self._handler.agent(frame.agent).fingerprint
                self.result.versions[frame.agent] = (frame.fingerprint, ours)

    @singledispatchmethod
    def compare(self, event: Event, now: Continuation) -> Iterator[Divergence]:
        """Yield the divergences of one event, which was recorded in the state `now`."""
        yield from ()

    @compare.register
    def _compare_frame(self, event: FrameOpened, now: Continuation) -> Iterator[Divergence]:
        self.result.agents += 1
        parents = () if event.parent is None else now.path(event.parent)
        path = (*parents, event.agent)
        try:
            ours = self._handler.agent(event.agent)
        except UnknownAgent:
            yield self._divergence(path, "the agent started", "there is no such agent")
            return
        self.result.versions[event.agent] = (event.fingerprint, ours.fingerprint)
        at = event.pinned.at if event.pinned else event.at or _BEFORE_TIMES
        try:
            instructions = self._handler.instruct(event.agent, event.input, at=at).text
        except InvalidInput as exc:
            yield self._divergence(path, "instructions made of its input", f"none: {exc}")
            return
        if instructions != event.instructions:
            other = "different instructions from the same input"
            yield self._divergence(path, "instructions made of its input", other)
        elif not instructions and ours.prompt != event.prompt:
            yield self._divergence(path, "its instructions", "other instructions")

    @compare.register
    def _changed(self, event: AgentChanged, now: Continuation) -> Iterator[Divergence]:
        agent = now.frame(event.frame).agent
        if agent in self.result.versions:
            self.result.versions[agent] = (event.fingerprint, self.result.versions[agent][1])
        yield from ()

    @compare.register
    def _replied(self, event: ModelReplied, now: Continuation) -> Iterator[Divergence]:
        agent = now.frame(event.frame).agent
        if not has_agent(self._handler, agent):
            return
        if event.given_by or not self._is_scripted(agent):
            self.result.kept += 1
            return
        today = self._ask(now, event.frame)
        self.result.replies += 1
        if isinstance(today, str) or _reply_with_secrets(today) != _reply_with_secrets(event):
            yield Divergence(
                position=self.position,
                path=now.path(event.frame),
                recorded=_reply_without_secrets(event),
                today=today if isinstance(today, str) else _reply_without_secrets(today),
                recorded_reply=extract_reply(event),
                today_reply=None if isinstance(today, str) else extract_reply(today),
            )

    @compare.register
    def _admitted(self, event: CallAdmitted, now: Continuation) -> Iterator[Divergence]:
        yield from self._call(now, event, Foreseen(effect=event.terms.effect))

    @compare.register
    def _refused(self, event: CallRefused, now: Continuation) -> Iterator[Divergence]:
        preview = now.call(event.frame, event.call).preview
        if (
            preview is None or not preview.refused
        ):  # a precondition depends on the world of that day
            yield from self._call(now, event, Foreseen(refused=event.reason))

    @compare.register
    def _gated(self, event: GateOpened, now: Continuation) -> Iterator[Divergence]:
        if event.call and event.terms is not None and event.kind in BEFORE_CALL:
            yield from self._call(now, event, Foreseen(asks=True, effect=event.terms.effect))

    def _call(
        self, now: Continuation, event: CallAdmitted | CallRefused | GateOpened, recorded: Foreseen
    ) -> Iterator[Divergence]:
        call = now.call(event.frame, event.call)
        if call.state is not CallState.PROPOSED or not has_agent(
            self._handler, now.frame(event.frame).agent
        ):
            return
        self.result.calls += 1
        today = self._admission.foresee(now, event.frame, event.call)
        if _classify_admission(today) != _classify_admission(recorded):
            path = now.path(event.frame, call.tool)
            yield self._divergence(path, _describe_admission(recorded), _describe_admission(today))

    def _divergence(self, path: tuple[str, ...], recorded: str, today: str) -> Divergence:
        return Divergence(position=self.position, path=path, recorded=recorded, today=today)

    def _ask(self, now: Continuation, frame: str) -> ModelAnswer | str:
        """Return the reply of a script today, or why there is none. Raises AgentStopped."""
        if self._stopped_agents() & {EVERY_AGENT, *now.path(frame)}:
            raise AgentStopped
        request = build_request(now, CallModel(frame=frame), self._inlined, {})
        assert isinstance(request, ModelRequest)
        outcomes: list[Outcome] = []
        self._handler.start_model_call(request, outcomes.append)
        (outcome,) = outcomes  # a script has replied on return
        try:
            outcome = validate_outcome(outcome)
        except NotJson as exc:
            return f"no reply that can be stored: {exc}"
        if isinstance(outcome, ModelAnswer):
            return outcome
        return f"no reply: {getattr(outcome, 'error', 'it waits')}"


def _reply_with_secrets(reply: ModelReplied | ModelAnswer) -> str:
    """Describe a reply with its secrets. Compare it only: two seals of one value differ."""
    calls = [(call.tool, sealing.open_secret_args(call.tool, call.args)) for call in reply.calls]
    return _describe_reply(sealing.open_text(reply.text), calls, reply.output)


def _reply_without_secrets(reply: ModelReplied | ModelAnswer) -> str:
    """Describe a reply in words, without its secrets."""
    calls = [(call.tool, redact(call.args)) for call in reply.calls]
    return _describe_reply(redact(reply.text), calls, redact(reply.output))


def _describe_reply(text: str, calls: Sequence[tuple[str, Any]], output: Any) -> str:
    """Describe everything in a reply that the run depends on."""
    clauses = [f"calls {tool} with {args}" for tool, args in calls]
    if output is not None:
        clauses.append(f"ends with {output}")
    elif text:
        clauses.append(f"says {text!r}")
    return " and ".join(clauses) or "says nothing"


def _classify_admission(foreseen: Foreseen) -> tuple[object, ...]:
    """Return the parts that two admissions are compared by: not the words of a refusal."""
    return bool(foreseen.refused), foreseen.failure, foreseen.asks, foreseen.effect


def _describe_admission(foreseen: Foreseen) -> str:
    if foreseen.failure:
        return f"the check of the call fails, and the agent is held: {foreseen.failure}"
    if foreseen.refused:
        return f"refused: {foreseen.refused}"
    outcome = "waits for a person" if foreseen.asks else "starts without a person"
    return f"{outcome}, effect class {foreseen.effect or EffectClass.WRITE}"
