"""Computes the budget usage of a run from its journal, with the engine's own core."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.utils import timezone

from runtime.core.documents.budget_text import name_of, to_text, unit_of
from runtime.core.run.accounting import active_seconds
from runtime.core.run.budgets import Amount, BudgetLimits, Limit, Spent
from runtime.core.run.continuation import Continuation
from runtime.core.values.ids import depth_of
from runtime.queries.journal import latest, remaining

_ALWAYS = (Limit.TURNS, Limit.CALLS, Limit.TOKENS, Limit.MICROS)


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
                below = [one for one in now.frames if f"{one}.".startswith(f"{frame.id}.")]
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
