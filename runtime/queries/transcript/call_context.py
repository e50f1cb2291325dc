"""Collects the context of one call: settled calls, open calls, and the declared steps of the agents on its path."""

from dataclasses import dataclass

from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.frames import FrameRecord
from runtime.queries.transcript.transcript import Transcript


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPlan:
    """The declared steps of one agent on the path; None if it has not declared any. `frame` has the plan it keeps."""

    agent: str
    steps: tuple[str, ...] | None
    frame: FrameRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInContext:
    """A call, and the depth of its agent below the root."""

    depth: int
    call: CallRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class CallContext:
    """`done` and `open` calls in tree order, without the call itself and the delegations above it."""

    done: tuple[CallInContext, ...]
    open: tuple[CallInContext, ...]
    plans: tuple[PathPlan, ...]


def context_of(transcript: Transcript, *, frame: str, call: str) -> CallContext:
    """Return the context of `call` of `frame`."""
    path = _path(transcript, frame)
    on_path = {f.id for f in path}
    steps = [
        CallInContext(depth=f.depth, call=c)
        for f in transcript.frames()
        for c in f.calls
        if (f.id, c.id) != (frame, call) and c.child not in on_path
    ]
    return CallContext(
        done=tuple(step for step in steps if step.call.is_settled),
        open=tuple(step for step in steps if not step.call.is_settled),
        plans=tuple(PathPlan(agent=f.agent, steps=f.plan, frame=f) for f in path),
    )


def _path(transcript: Transcript, frame: str) -> list[FrameRecord]:
    """Return the frames from the root down to `frame`."""
    return [f for f in transcript.frames() if f.is_above(frame)]
