"""Compares the agents of a run with those of this process, and decides whether and how it may advance the run.

During a release, old and new workers run side by side, and each may receive any hint. A worker may lack an agent, or
have an older version of it than the run has used. It then releases the run without writing an entry, forwards the
hint, and skips the run with growing back-off. A run that only has to end needs no agent: any worker ends it.

A worker with a newer version continues with it if that needs no approval, and otherwise opens a version gate. From
then on the run has used that version too.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from uuid import UUID

from runtime.core.continuation import Continuation, Pending, Phase
from runtime.core.digest import sha256_of
from runtime.core.enums import GateKind
from runtime.core.events import AgentChanged
from runtime.errors import WorkerOutdated
from runtime.execution.admission.gates import AdmissionResult, open_frame_gate
from runtime.execution.prompts import with_prompt
from runtime.ports.agents import VersionChange
from runtime.ports.effects import EffectHandler

MIN_PAUSE_SECONDS = 1.0
MAX_PAUSE_SECONDS = 60.0
FORGET_SECONDS = 300.0
MAX_WHY = 500
NAMED = 3  # changes, in the sentence of a gate; its page shows all of them

VersionChanges = dict[str, VersionChange]


def compare(now: Continuation, handler: EffectHandler) -> VersionChanges:
    """Return the differences between this process's agents and those of the open frames, by frame.

    Raises UnknownAgent or WorkerOutdated if this process may not advance the run.
    """
    if not now.frames:
        handler.agent(now.agent)
    changes = {}
    for frame in now.frames.values():
        change = handler.compare_version(frame.agent, frame.fingerprint)
        if change is None:
            continue
        if change.older:
            raise WorkerOutdated(
                f"it has used a newer version of {frame.agent} than this worker has"
            )
        changes[frame.id] = change
    for gate in version_gates(now):
        agent = now.frame(gate.frame).agent
        change = handler.compare_version(agent, gate.version)
        if change is not None and change.older:
            raise WorkerOutdated(
                f"people are asked about a newer version of {agent} than this worker has"
            )
    return changes


def version_gates(now: Continuation) -> tuple[Pending, ...]:
    """Return the open version gates."""
    return tuple(gate for gate in now.pending if gate.kind is GateKind.VERSION)


def open_version_gate(
    now: Continuation, frame: str, change: VersionChange, at: datetime
) -> AdmissionResult:
    """Return the gate at which people see the changes, and continue the frame or end the run."""
    agent = now.frame(frame).agent
    args = {
        "agent": agent,
        "before": now.frame(frame).fingerprint,
        "after": change.agent.fingerprint,
        "changes": [asdict(agent_change) for agent_change in change.changes],
    }
    parts = [agent_change.part for agent_change in change.changes if agent_change.asks]
    summary = ", ".join(parts[:NAMED]) + (
        f" and {len(parts) - NAMED} more" if parts[NAMED:] else ""
    )
    return open_frame_gate(
        now,
        frame,
        GateKind.VERSION,
        reason=f"{agent} is another version than when it began: {summary}"[:MAX_WHY],
        args=args,
        at=at,
        version=change.agent.fingerprint,
    )


def require_agents(now: Continuation, version_changes: VersionChanges | None) -> None:
    """Raise WorkerOutdated for a worker without the run's agents, unless the run is ending."""
    if version_changes is None and now.phase is not Phase.CANCELLING:
        raise WorkerOutdated("no signal ends it any longer")


def now_writes(version_changes: VersionChanges) -> dict[str, tuple[str, ...]]:
    """Return the tools that have become writes, by frame."""
    return {frame: change.writes for frame, change in version_changes.items()}


def agent_changed(
    now: Continuation,
    frame: str,
    change: VersionChange,
    handler: EffectHandler,
    by: str = "",
    *,
    at: datetime,
) -> AgentChanged:
    """Build the event by which a frame continues with this process's version, and with the prompt of today.

    `by` decided that for all runs. Raise InvalidInput if this version cannot make its instructions from the input.
    """
    here = now.frame(frame)
    instructions = handler.instruct(here.agent, here.messages[0]["content"], at=at)
    return AgentChanged(
        frame=frame,
        before=here.fingerprint,
        fingerprint=change.agent.fingerprint,
        prompt=sha256_of(instructions.text) if instructions.text else change.agent.prompt,
        instructions=instructions.text,
        pinned=instructions.pinned,
        changes=with_prompt(change.changes, here.pinned, instructions.pinned),
        writes=change.writes,
        by=by,
    )


def approve_change(
    now: Continuation, gate: Pending, handler: EffectHandler
) -> VersionChange | None:
    """Return the version with which a frame continues after a version gate; None after any other gate."""
    if gate.kind is not GateKind.VERSION:
        return None
    frame = now.frame(gate.frame)
    change = handler.compare_version(frame.agent, frame.fingerprint)
    if change is None or change.agent.fingerprint != gate.version:
        return None
    return change


@dataclass(slots=True, kw_only=True)
class _RefusedChange:
    times: int
    until: float
    signal_version: int
    passed_on: float


class RunBackoff:
    """The runs that this process could not advance. `clock` is a monotonic one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[UUID, _RefusedChange] = {}

    def add(self, run: UUID, signal_version: int) -> None:
        """Skip the run for twice as long as last time, or until it receives a signal."""
        with self._lock:
            at = self._clock()
            self._expire(at)
            last = self._runs.get(run)
            times = last.times + 1 if last else 1
            pause = min(MAX_PAUSE_SECONDS, MIN_PAUSE_SECONDS * 2 ** (times - 1))
            self._runs[run] = _RefusedChange(
                times=times, until=at + pause, signal_version=signal_version, passed_on=at
            )

    def drop(self, run: UUID) -> None:
        """Stop skipping the run, because this process has advanced it."""
        with self._lock:
            self._runs.pop(run, None)

    def is_active(self, run: UUID, signal_version: Callable[[], int]) -> bool:
        """Return whether to skip the run now. `signal_version` returns its count; it is called only if needed."""
        with self._lock:
            refused = self._runs.get(run)
        return (
            refused is not None
            and self._clock() < refused.until
            and signal_version() == refused.signal_version
        )

    def forward_once(self, run: UUID) -> bool:
        """Return whether to forward a hint to another worker: once in each back-off, or hints would circulate."""
        with self._lock:
            at, refused = self._clock(), self._runs.get(run)
            if refused is None or at - refused.passed_on < MIN_PAUSE_SECONDS:
                return False
            refused.passed_on = at
            return True

    def _expire(self, at: float) -> None:
        """Drop old entries: other workers have advanced their runs since."""
        expired = [
            run for run, refused in self._runs.items() if refused.until + FORGET_SECONDS < at
        ]
        for run in expired:
            del self._runs[run]
