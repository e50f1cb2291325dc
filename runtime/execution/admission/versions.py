"""Compares the agents of a run with those of this process, and decides whether and how it may advance the run.

During a release, old and new workers run side by side, and each may receive any hint. A worker may lack an agent, or
have an older version of it than the run has used. It then releases the run without writing an entry, forwards the
hint, and skips the run with growing back-off. A run that only has to end needs no agent: any worker ends it.

A worker with a newer version continues with it if that needs no approval, and otherwise opens a version gate. From
then on the run has used that version too.
"""

from dataclasses import asdict
from datetime import datetime

from runtime.core.run.continuation import Continuation, Pending
from runtime.core.run.events import AgentChange, AgentChanged, PinnedPrompt
from runtime.core.values.enums import GateKind
from runtime.core.values.ids import ROOT
from runtime.core.values.json_values import hash_value
from runtime.errors import WorkerOutdated
from runtime.execution.admission.gates import AdmissionResult, open_frame_gate
from runtime.ports.agents import VersionChange
from runtime.ports.effects import EffectHandler

MAX_WHY = 500
NAMED = 3  # changes, in the sentence of a gate; its page shows all of them
VersionChanges = dict[str, VersionChange]
PART = "prompt"  # as in the definition of an agent


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
    for gate in list_version_gates(now):
        agent = now.frame(gate.frame).agent
        change = handler.compare_version(agent, gate.version)
        if change is not None and change.older:
            raise WorkerOutdated(
                f"people are asked about a newer version of {agent} than this worker has"
            )
    return changes


def list_version_gates(now: Continuation) -> tuple[Pending, ...]:
    """Return the open version gates."""
    if not now.pending:
        return ()
    return tuple([gate for gate in now.pending if gate.kind is GateKind.VERSION])


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


def collect_new_writes(version_changes: VersionChanges) -> dict[str, tuple[str, ...]]:
    """Return the tools that have become writes, by frame."""
    return {frame: change.writes for frame, change in version_changes.items()}


def build_agent_changed(
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
        prompt=hash_value(instructions.text) if instructions.text else change.agent.prompt,
        instructions=instructions.text,
        pinned=instructions.pinned,
        changes=with_prompt(change.changes, here.pinned, instructions.pinned),
        writes=change.writes,
        by=by,
    )


def find_prompt_time(now: Continuation, parent: str | None) -> datetime | None:
    """Return the time whose versions a frame below `parent` uses; None for the first frame, which uses today's."""
    while parent is not None:
        frame = now.frame(parent)
        if frame.pinned is not None:
            return frame.pinned.at
        parent = frame.parent
    return now.frames[ROOT].opened_at if ROOT in now.frames else None


def with_prompt(
    changes: tuple[AgentChange, ...], before: PinnedPrompt | None, after: PinnedPrompt | None
) -> tuple[AgentChange, ...]:
    """Add the change of the prompt's version. Like a reworded text, it needs no approval."""
    if _describe_version(before) == _describe_version(after):
        return changes
    prompt_change = AgentChange(
        part=PART, before=_describe_version(before), after=_describe_version(after), asks=False
    )
    return (*(change for change in changes if change.part != PART), prompt_change)


def _describe_version(pinned: PinnedPrompt | None) -> str | None:
    if pinned is None:
        return None
    version = f"version {pinned.number}" if pinned.number else "the text in the code"
    return f"{pinned.name}, {version}"
