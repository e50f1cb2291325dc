"""Reads a run for its page: its transcript, its timeline, and the input and output of each step."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from runtime.core.documents.budget_text import name_of, to_text, unit_of
from runtime.core.run.accounting import active_seconds
from runtime.core.run.continuation import Continuation, RunStatus
from runtime.core.run.events import Remembered
from runtime.core.values.budgets import Amount, BudgetLimits, Limit, Spent
from runtime.core.values.ids import depth_of
from runtime.models import Gate
from runtime.ports import wiring
from runtime.reads.journal import JournalLine, latest, remaining
from runtime.reads.runs import RunDetail
from runtime.reads.step_map import StepMap, map_of
from runtime.reads.timeline import Timeline, timeline_of
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.fold import fold
from runtime.reads.trace.frames import FrameMessage, FrameRecord
from runtime.reads.trace.span import GateFacts, Span
from runtime.reads.transcript import Transcript, transcript_of

_ALWAYS = (Limit.TURNS, Limit.CALLS, Limit.TOKENS, Limit.MICROS)
_INPUT_KINDS = frozenset({"input", "result", "fault", "late", "decision", "message"})
_OUTPUT_KINDS = frozenset({"text", "call"})


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetUsage:
    """The usage of one limit: of the run if `frame` is None, else of a frame with limits of its own.

    `used` and `allowed` are text, money in US dollars. `unpriced` counts replies without a known price,
    which `used` omits. `share` is a whole percentage, at most 100.
    """

    frame: str | None
    agent: str
    limit: str
    unit: str
    used: str
    allowed: str | None
    share: int
    unpriced: int = 0


def usage(run: UUID) -> tuple[BudgetUsage, ...]:
    """Return the usage of a run, its own first. The caller has checked that the run may be read."""
    journal = remaining(run)
    return usage_of(latest(journal.start, journal.lines))


def usage_of(now: Continuation) -> tuple[BudgetUsage, ...]:
    """Return the usage of a run in this state. Return nothing if none of its entries can be read or folded."""
    return tuple(_uses(now, timezone.now())) if now.position else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHistory:
    """A run's journal, read and folded once."""

    transcript: Transcript
    timeline: Timeline
    usage: tuple[BudgetUsage, ...]
    memory: tuple[Remembered, ...] = ()

    @property
    def steps(self) -> StepMap:
        """The map of the timeline."""
        return map_of(self.timeline.rows)

    def step(self, step: str) -> "StepView | None":
        """Return a step by name: a frame, a call of a frame, or a model call; None if there is none."""
        frame_id, _, part_id = step.partition("/")
        frame, rows = self.transcript.frame(frame_id), self.timeline.of_step(step)
        if frame is None or not rows:
            return None
        if not part_id:
            return _frame_step(step, frame, rows)
        call = self.transcript.call(frame_id, part_id)
        if call is not None:
            return StepView(step=step, title=call.tool, agent=call.agent, rows=rows, call=call)
        return _model_step(step, frame, rows, int(part_id[1:]))


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    """One step opened: its rows, and its call, or its input and output messages."""

    step: str
    title: str
    agent: str
    rows: tuple[Span, ...]
    call: CallRecord | None = None
    input_messages: tuple[FrameMessage, ...] = ()
    output_messages: tuple[FrameMessage, ...] = ()
    plan: tuple[str, ...] | None = None

    @property
    def is_model(self) -> bool:
        """Whether the step is a model call."""
        return "/m" in self.step


def history(run: RunDetail, *, provider_errors: bool = False) -> RunHistory:
    """Read a run with three queries, or five if entries were removed.

    The caller has checked that the actor may read it, and is an admin for `provider_errors`.
    """
    journal = remaining(run.id)
    trace = fold(
        journal, gates=_gates(run.id), start=run.created_at, provider_errors=provider_errors
    )
    return RunHistory(
        transcript=transcript_of(trace),
        timeline=timeline_of(trace, until=_until(run, journal.lines)),
        usage=usage_of(trace.now),
        memory=trace.memory,
    )


def _uses(now: Continuation, at: datetime) -> Iterator[BudgetUsage]:
    budget = now.budget or BudgetLimits()
    deepest = max((depth_of(frame) + 1 for frame in now.frames), default=0)
    for limit in Limit:
        if limit in _ALWAYS or budget.of(limit) is not None:
            used = _used(limit, now.spent, active_seconds(now, at), deepest)
            yield _use(None, now.agent, limit, used, budget, now.spent)
    for frame in now.frames.values():
        for limit in Limit:
            if frame.budget is not None and frame.budget.of(limit) is not None:
                below = [other for other in now.frames if f"{other}.".startswith(f"{frame.id}.")]
                levels = max(map(depth_of, below)) - depth_of(frame.id) + 1
                used = _used(limit, frame.spent, active_seconds(now, at) - frame.since, levels)
                yield _use(frame.id, frame.agent, limit, used, frame.budget, frame.spent)


def _used(limit: Limit, spent: Spent, seconds: float, levels: int) -> Amount:
    match limit:
        case Limit.SECONDS:
            return float(int(seconds))
        case Limit.DEPTH:
            return levels
        case _:
            used: int = getattr(spent, limit)
            return used


def _use(
    frame: str | None, agent: str, limit: Limit, used: Amount, budget: BudgetLimits, spent: Spent
) -> BudgetUsage:
    allowed = budget.of(limit)
    return BudgetUsage(
        frame=frame,
        agent=agent,
        limit=name_of(limit),
        unit=unit_of(limit),
        used=to_text(limit, used),
        allowed=None if allowed is None else to_text(limit, allowed),
        share=0 if allowed is None else min(100, int(100 * used / allowed)),
        unpriced=spent.unpriced if limit is Limit.MICROS else 0,
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
    inputs = tuple(message for message in frame.messages if message.kind == "input")
    last = [message for message in frame.messages if message.kind in ("text", "fault")][-1:]
    return StepView(
        step=step,
        title=frame.agent,
        agent=frame.agent,
        rows=rows,
        input_messages=inputs,
        output_messages=tuple(last) if frame.outcome is not None else (),
        plan=frame.plan,
    )


def _model_step(step: str, frame: FrameRecord, rows: tuple[Span, ...], turn: int) -> StepView:
    """Show the messages since the model's last reply, and its reply."""
    before = tuple(m for m in frame.messages if m.turn == turn - 1 and m.kind in _INPUT_KINDS)
    reply = tuple(m for m in frame.messages if m.turn == turn and m.kind in _OUTPUT_KINDS)
    return StepView(
        step=step,
        title=frame.agent,
        agent=frame.agent,
        rows=rows,
        input_messages=before,
        output_messages=reply,
    )
