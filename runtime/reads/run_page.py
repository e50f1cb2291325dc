"""Reads a run for its page: its transcript, its timeline, and the input and output of each step."""

import threading
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from time import monotonic
from typing import Generic, TypeVar
from uuid import UUID

from django.utils import timezone

from runtime.core.run.accounting import compute_active_seconds
from runtime.core.run.continuation import Continuation, RunStatus
from runtime.core.run.events import Remembered
from runtime.core.values.budgets import (
    Amount,
    BudgetLimits,
    Limit,
    Spent,
    name_limit,
    name_unit,
    to_text,
)
from runtime.core.values.ids import compute_depth
from runtime.models import Gate
from runtime.ports import wiring
from runtime.reads.journal import Remaining, fold_last_state, read, read_remaining
from runtime.reads.run_rows import RunDetail
from runtime.reads.timeline import StepMap, Timeline, build_map, build_timeline, list_step_rows
from runtime.reads.trace.calls import CallRecord
from runtime.reads.trace.fold import Trace, fold
from runtime.reads.trace.frames import FrameMessage
from runtime.reads.trace.span import GateFacts, Span
from runtime.reads.transcript import Transcript, build_transcript

LONG = 600  # entries above which a run is kept for the next page
MAX_BYTES = (
    16 * 2**20
)  # of the entries of all kept runs, as text; folded they take a few times as much
FRESH = timedelta(seconds=5)
MAX_SECONDS = 600.0  # that a run is kept without a page

T = TypeVar("T")

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


def read_budget_usage(run: UUID) -> tuple[BudgetUsage, ...]:
    """Return the usage of a run, its own first. The caller has checked that the run may be read."""
    journal = read_remaining(run)
    return compute_budget_usage(fold_last_state(journal.start, journal.lines))


def compute_budget_usage(now: Continuation) -> tuple[BudgetUsage, ...]:
    """Return the usage of a run in this state. Return nothing if none of its entries can be read or folded."""
    if not now.position:
        return ()
    seconds = compute_active_seconds(now, timezone.now())
    budget = now.budget or BudgetLimits()
    deepest = max((compute_depth(frame) + 1 for frame in now.frames), default=0)
    uses = []
    for limit in Limit:
        if limit in _ALWAYS or budget.of(limit) is not None:
            used = _compute_used(limit, now.spent, seconds, deepest)
            uses.append(_use(None, now.agent, limit, used, budget, now.spent))
    for frame in now.frames.values():
        for limit in Limit:
            if frame.budget is not None and frame.budget.of(limit) is not None:
                below = [other for other in now.frames if f"{other}.".startswith(f"{frame.id}.")]
                levels = max(map(compute_depth, below)) - compute_depth(frame.id) + 1
                used = _compute_used(limit, frame.spent, seconds - frame.since, levels)
                uses.append(_use(frame.id, frame.agent, limit, used, frame.budget, frame.spent))
    return tuple(uses)


@dataclass(frozen=True, kw_only=True)
class RunHistory:
    """A run's journal, read and folded once. `until` is its end, or now. A page makes only the views that it needs."""

    trace: Trace
    until: datetime

    @cached_property
    def transcript(self) -> Transcript:
        """The frames with their calls and messages."""
        return build_transcript(self.trace)

    @cached_property
    def timeline(self) -> Timeline:
        """The spans on an axis."""
        return build_timeline(self.trace, until=self.until)

    @cached_property
    def usage(self) -> tuple[BudgetUsage, ...]:
        """The usage of the run's limits."""
        return compute_budget_usage(self.trace.now)

    @property
    def memory(self) -> tuple[Remembered, ...]:
        """The texts of earlier runs that it was given."""
        return self.trace.memory

    @cached_property
    def steps(self) -> StepMap:
        """The map of the timeline."""
        return build_map(self.timeline.rows)

    def step(self, step: str) -> "StepView | None":
        """Return a step by name: a frame, a call of a frame, or a model call; None if there is none."""
        frame_id, _, part_id = step.partition("/")
        frame = self.trace.frames.get(frame_id)
        rows = list_step_rows(self.trace, step, until=self.until)
        if frame is None or not rows:
            return None
        call = frame.by_id.get(part_id)
        if call is not None:
            return StepView(step=step, title=call.tool, agent=call.agent, rows=rows, call=call)
        messages = frame.messages
        if part_id:  # a reply of the model, after the messages since its last one
            turn = int(part_id[1:])
            inputs = [m for m in messages if m.turn == turn - 1 and m.kind in _INPUT_KINDS]
            outputs = [m for m in messages if m.turn == turn and m.kind in _OUTPUT_KINDS]
        else:
            inputs = [message for message in messages if message.kind == "input"]
            outputs = [message for message in messages if message.kind in ("text", "fault")][-1:]
        return StepView(
            step=step,
            title=frame.agent,
            agent=frame.agent,
            rows=rows,
            input_messages=tuple(inputs),
            output_messages=tuple(outputs) if part_id or frame.outcome is not None else (),
            plan=None if part_id else frame.plan,
        )


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


@contextmanager
def open_history(run: RunDetail, *, provider_errors: bool = False) -> Iterator[RunHistory]:
    """Read a run with three queries, or five if entries were removed; a long one from where the last page stopped.

    The caller has checked that the actor may read it, and is an admin for `provider_errors`. The history belongs to
    the block: the next page goes on with it. Pages verify nothing, so an entry that was changed in its place is seen
    when the whole run is read again.
    """
    key = (run.id, provider_errors, run.history_begins, run.archived_at, run.removed_at)
    gates = _read_gate_facts(run.id)
    reading = _SHELF.take(key) if run.status != RunStatus.QUARANTINED else None
    if reading is None or not reading.read_new_entries(run, gates):
        reading = _Reading(read_remaining(run.id), run, gates, provider_errors)
    yield reading.build_history(run)
    if reading.position > LONG and not reading.is_odd:
        _SHELF.put(key, reading, reading.size)


class _Reading:
    """A journal that was folded up to `position`, and what a page made of it."""

    def __init__(
        self,
        journal: Remaining,
        run: RunDetail,
        gates: Mapping[UUID, GateFacts],
        provider_errors: bool,
    ) -> None:
        self._trace = fold(
            journal, gates=gates, start=run.created_at, provider_errors=provider_errors
        )
        self._last = journal.lines[-1] if journal.lines else None
        self._gates = gates
        self._history: RunHistory | None = None
        self._state: tuple[object, ...] = ()
        self._at = run.created_at
        self._last_at = max(
            (line.entry.at for line in journal.lines if line.entry), default=run.created_at
        )
        self.size = sum(line.size for line in journal.lines)

    @property
    def position(self) -> int:
        """The position of the last entry."""
        return self._last.position if self._last else 0

    @property
    def is_odd(self) -> bool:
        """Whether the whole journal is read each time, because not only new entries may change it."""
        return bool(self._trace.unreadable) or self._trace.exported

    def read_new_entries(self, run: RunDetail, gates: Mapping[UUID, GateFacts]) -> bool:
        """Read the entries that are new. Return False if they do not follow those that were read."""
        assert self._last is not None  # only long runs are kept
        last, *lines = read(run.id, after=self.position - 1) or (None,)
        if last is None or (last.position, last.mac) != (self.position, self._last.mac):
            return False
        if lines or gates != self._gates:
            self._history = None
        self._trace.take_gates(gates)
        for line in lines:
            self._trace.read(line)
            self._last, self.size = line, self.size + line.size
        self._gates = gates
        return not self._trace.exported

    def build_history(self, run: RunDetail) -> RunHistory:
        """Return the history until now; for a moment the same one while nothing happens, because only clocks go on."""
        now, state = timezone.now(), (run.status, run.ended_at)
        is_fresh = run.ended_at is not None or now - self._at < FRESH
        if self._history is None or state != self._state or not is_fresh:
            until = run.ended_at or now
            if run.ended_at is None and run.status == RunStatus.QUARANTINED:
                until = self._last_at  # it does not continue, even if its last entry is open
            self._history = RunHistory(trace=self._trace, until=until)
            self._state, self._at = state, now
        return self._history


def _compute_used(limit: Limit, spent: Spent, seconds: float, levels: int) -> Amount:
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
        limit=name_limit(limit),
        unit=name_unit(limit),
        used=to_text(limit, used),
        allowed=None if allowed is None else to_text(limit, allowed),
        share=0 if allowed is None else min(100, int(100 * used / allowed)),
        unpriced=spent.unpriced if limit is Limit.MICROS else 0,
    )


def _read_gate_facts(run: UUID) -> dict[UUID, GateFacts]:
    rows = list(Gate.objects.filter(run_id=run).values_list("id", "state", "decided_at"))
    approvals = (
        wiring.resolve_approvals().map_requests([gate for gate, _, _ in rows]) if rows else {}
    )
    decided = {Gate.State.DECIDED, Gate.State.EFFECTIVE}
    return {
        gate: GateFacts(decided_at=at if state in decided else None, approval=approvals.get(gate))
        for gate, state, at in rows
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShelfEntry(Generic[T]):
    value: T
    size: int
    at: float


class Shelf(Generic[T]):
    """Values by key, together of at most `limit` in size. Those that no page took for long go first."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._entries: OrderedDict[Hashable, _ShelfEntry[T]] = OrderedDict()
        self._lock = threading.Lock()

    def take(self, key: Hashable) -> T | None:
        """Take a value off the shelf; None if it is not there, or another page has it."""
        with self._lock:
            entry = self._entries.pop(key, None)
        return entry.value if entry and entry.at + MAX_SECONDS > monotonic() else None

    def put(self, key: Hashable, value: T, size: int) -> None:
        """Put a value on the shelf, and remove others that are too many or too old."""
        with self._lock:
            self._entries.pop(key, None)
            self._entries[key] = _ShelfEntry(value=value, size=size, at=monotonic())
            total = sum(entry.size for entry in self._entries.values())
            while self._entries:
                oldest = next(iter(self._entries.values()))
                if total <= self.limit and oldest.at + MAX_SECONDS > monotonic():
                    return
                total -= oldest.size
                self._entries.popitem(last=False)

    def clear(self) -> None:
        """Remove all values."""
        with self._lock:
            self._entries.clear()


_SHELF: Shelf[_Reading] = Shelf(MAX_BYTES)


def forget() -> None:
    """Forget all kept runs."""
    _SHELF.clear()
