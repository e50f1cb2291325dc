"""Reads a run for its page: its transcript, its timeline, and the input and output of each step."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from runtime.core.run.continuation import RunStatus
from runtime.core.run.events import Remembered
from runtime.models import Gate
from runtime.ports import wiring
from runtime.queries.budget_usage import BudgetUsage, usage_of
from runtime.queries.journal import JournalLine, remaining
from runtime.queries.runs import RunDetail
from runtime.queries.spans.calls import CallRecord
from runtime.queries.spans.fold import fold
from runtime.queries.spans.frames import FrameMessage, FrameRecord
from runtime.queries.spans.span import GateFacts, Span
from runtime.queries.timeline.timeline import Timeline, timeline_of
from runtime.queries.transcript.transcript import Transcript, transcript_of

_GIVEN = frozenset({"input", "result", "fault", "late", "decision", "message"})
_SAID = frozenset({"text", "call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """A run's journal, read and folded once."""

    transcript: Transcript
    timeline: Timeline
    usage: tuple[BudgetUsage, ...]
    memory: tuple[Remembered, ...] = ()

    def step(self, step: str) -> "StepView | None":
        """Return a step by name: a frame, a call of a frame, or a model call; None if there is none."""
        frame_id, _, rest = step.partition("/")
        frame, rows = self.transcript.frame(frame_id), self.timeline.of_step(step)
        if frame is None or not rows:
            return None
        if not rest:
            return _frame_step(step, frame, rows)
        call = self.transcript.call(frame_id, rest)
        if call is not None:
            return StepView(step=step, title=call.tool, agent=call.agent, rows=rows, call=call)
        return _model_step(step, frame, rows, int(rest[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step opened: its rows, and its call, or its input and output messages."""

    step: str
    title: str
    agent: str
    rows: tuple[Span, ...]
    call: CallRecord | None = None
    given: tuple[FrameMessage, ...] = ()
    said: tuple[FrameMessage, ...] = ()
    plan: tuple[str, ...] | None = None

    @property
    def is_model(self) -> bool:
        """Whether the step is a model call."""
        return "/m" in self.step


def history(run: RunDetail, *, whole: bool = False) -> RunHistory:
    """Read a run with three queries, or five if entries were removed.

    The caller has checked that the actor may read it, and is an admin for `whole`.
    """
    journal = remaining(run.id)
    trace = fold(journal, gates=_gates(run.id), start=run.created_at, whole=whole)
    return RunHistory(
        transcript=transcript_of(trace),
        timeline=timeline_of(trace, until=_until(run, journal.lines)),
        usage=usage_of(trace.now),
        memory=trace.memory,
    )


def _until(run: RunDetail, lines: tuple[JournalLine, ...]) -> datetime:
    if run.ended_at is not None:
        return run.ended_at
    if (
        run.status == RunStatus.QUARANTINED
    ):  # the run does not continue, even if its last entry is open
        return max((line.entry.at for line in lines if line.entry), default=run.created_at)
    return timezone.now()


def _gates(run: UUID) -> dict[UUID, GateFacts]:
    rows = list(Gate.objects.filter(run_id=run).values_list("id", "state", "decided_at"))
    approvals = wiring.approvals().requests_by_gate([gate for gate, _, _ in rows]) if rows else {}
    decided = {Gate.State.DECIDED, Gate.State.EFFECTIVE}
    return {
        gate: GateFacts(decided_at=at if state in decided else None, approval=approvals.get(gate))
        for gate, state, at in rows
    }


def _frame_step(step: str, frame: FrameRecord, rows: tuple[Span, ...]) -> StepView:
    given = tuple(message for message in frame.messages if message.kind == "input")
    last = [message for message in frame.messages if message.kind in ("text", "fault")][-1:]
    return StepView(
        step=step,
        title=frame.agent,
        agent=frame.agent,
        rows=rows,
        given=given,
        said=tuple(last) if frame.outcome is not None else (),
        plan=frame.plan,
    )


def _model_step(step: str, frame: FrameRecord, rows: tuple[Span, ...], turn: int) -> StepView:
    """Show the messages since the model's last reply, and its reply."""
    before = tuple(m for m in frame.messages if m.turn == turn - 1 and m.kind in _GIVEN)
    said = tuple(m for m in frame.messages if m.turn == turn and m.kind in _SAID)
    return StepView(
        step=step, title=frame.agent, agent=frame.agent, rows=rows, given=before, said=said
    )
