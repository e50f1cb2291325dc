"""Compares the agents of a run with those of this process: which workers may act on the run, and under which version.

During a release, old and new workers run side by side, and each of them may get any hint. A worker whose version of an
agent is older than the one that the run has met, or that does not have the agent, releases the run without writing an
entry, forwards the hint, and skips the run with growing back-off. A run that is to end needs no agent: any worker ends
it.

A worker whose version is newer continues under it if that needs no approval, and otherwise opens a version gate. From
then on the run has met that version too.
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
from runtime.errors import Outdated
from runtime.execution.admission.gates import AdmissionResult, halt
from runtime.ports.agents import VersionChange
from runtime.ports.effects import EffectHandler

FIRST_PAUSE = 1.0
LONGEST_PAUSE = 60.0
FORGOTTEN_AFTER = 300.0
MAX_WHY = 500
NAMED = 3  # changes, in the sentence of a gate; its page shows all of them

VersionChanges = dict[str, VersionChange]


def look(now: Continuation, handler: EffectHandler) -> VersionChanges:
    """How this process's agents differ from those of the open frames, by frame.

    Raises UnknownAgent or Outdated if this process may not act on the run.
    """
    if not now.frames:
        handler.agent(now.agent)
    found = {}
    for frame in now.frames.values():
        skew = handler.skew(frame.agent, frame.fingerprint)
        if skew is None:
            continue
        if skew.older:
            raise Outdated(f"it has met a newer version of {frame.agent} than this worker has")
        found[frame.id] = skew
    for gate in asked(now):
        agent = now.frame(gate.frame).agent
        skew = handler.skew(agent, gate.version)
        if skew is not None and skew.older:
            raise Outdated(
                f"people are asked about a newer version of {agent} than this worker has"
            )
    return found


def asked(now: Continuation) -> tuple[Pending, ...]:
    """The version gates that are open."""
    return tuple(gate for gate in now.pending if gate.kind is GateKind.VERSION)


def ask(now: Continuation, frame: str, skew: VersionChange, at: datetime) -> AdmissionResult:
    """The gate at which people see what changed, and let the frame go on or end the run."""
    agent = now.frame(frame).agent
    facts = {
        "agent": agent,
        "before": now.frame(frame).fingerprint,
        "after": skew.agent.fingerprint,
        "changes": [asdict(change) for change in skew.changes],
    }
    parts = [change.part for change in skew.changes if change.asks]
    named = ", ".join(parts[:NAMED]) + (f" and {len(parts) - NAMED} more" if parts[NAMED:] else "")
    return halt(
        now,
        frame,
        GateKind.VERSION,
        why=f"{agent} is another version than when it began: {named}"[:MAX_WHY],
        facts=facts,
        at=at,
        version=skew.agent.fingerprint,
    )


def require_agents(now: Continuation, skews: VersionChanges | None) -> None:
    """Raises Outdated for a worker without the run's agents, unless the run is ending."""
    if skews is None and now.phase is not Phase.CANCELLING:
        raise Outdated("no signal ends it any more")


def writes(skews: VersionChanges) -> dict[str, tuple[str, ...]]:
    """The tools that have become writes, by frame."""
    return {frame: skew.writes for frame, skew in skews.items()}


def agent_changed(
    now: Continuation, frame: str, skew: VersionChange, handler: EffectHandler
) -> AgentChanged:
    """Build the event by which a frame continues with this process's version.

    Raise InvalidInput if this version cannot make its instructions from the frame's input.
    """
    here = now.frame(frame)
    instructions = handler.instruct(here.agent, here.messages[0]["content"])
    return AgentChanged(
        frame=frame,
        before=here.fingerprint,
        fingerprint=skew.agent.fingerprint,
        prompt=sha256_of(instructions) if instructions else skew.agent.prompt,
        instructions=instructions,
        changes=skew.changes,
        writes=skew.writes,
    )


def agreed(now: Continuation, gate: Pending, handler: EffectHandler) -> VersionChange | None:
    """Return the version with which a frame continues after a version gate; None after any other gate."""
    if gate.kind is not GateKind.VERSION:
        return None
    frame = now.frame(gate.frame)
    skew = handler.skew(frame.agent, frame.fingerprint)
    if skew is None or skew.agent.fingerprint != gate.version:
        return None
    return skew


@dataclass(slots=True, kw_only=True)
class _Refused:
    times: int
    until: float
    mailbox: int
    passed_on: float


class RunBackoff:
    """The runs that this process could not act on. `clock` is a steady one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._runs: dict[UUID, _Refused] = {}

    def add(self, run: UUID, mailbox: int) -> None:
        """Leave the run alone for twice as long as last time, unless it gets mail."""
        with self._lock:
            at = self._clock()
            self._forget(at)
            last = self._runs.get(run)
            times = last.times + 1 if last else 1
            pause = min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (times - 1))
            self._runs[run] = _Refused(times=times, until=at + pause, mailbox=mailbox, passed_on=at)

    def drop(self, run: UUID) -> None:
        """This process has acted on the run after all."""
        with self._lock:
            self._runs.pop(run, None)

    def is_active(self, run: UUID, mailbox: Callable[[], int]) -> bool:
        """Whether to leave the run alone now. `mailbox` is asked for its count only if that matters."""
        with self._lock:
            found = self._runs.get(run)
        return found is not None and self._clock() < found.until and mailbox() == found.mailbox

    def forward_once(self, run: UUID) -> bool:
        """Whether another worker should hear of a hint that came here: once a pause, or hints would go round."""
        with self._lock:
            at, found = self._clock(), self._runs.get(run)
            if found is None or at - found.passed_on < FIRST_PAUSE:
                return False
            found.passed_on = at
            return True

    def _forget(self, at: float) -> None:
        """Those of long ago: their runs have found another worker."""
        gone = [run for run, one in self._runs.items() if one.until + FORGOTTEN_AFTER < at]
        for run in gone:
            del self._runs[run]
