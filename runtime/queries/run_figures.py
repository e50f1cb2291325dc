"""Computes the figures of an agent from its last runs: how they ended, how long they took, and what people decided."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from math import ceil

from django.db.models import Q

from runtime.core.run.continuation import RunStatus
from runtime.models import Run
from runtime.ports import wiring

LAST = 200  # runs

_GOOD, _BAD = (RunStatus.COMPLETED,), (RunStatus.FAILED, RunStatus.QUARANTINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFigures:
    """The figures of the last `runs` runs, LAST at most.

    `succeeded` and `failed` count those that ended so; `median` and `p95` are of the times that the succeeded
    ones took, waiting included. `approved` and `denied` count the calls on which a person decided.
    """

    runs: int
    succeeded: int
    failed: int
    median: timedelta | None
    p95: timedelta | None
    approved: int
    denied: int

    @property
    def success(self) -> int | None:
        """The share of succeeded runs among those that succeeded or failed, in percent."""
        return _percent(self.succeeded, self.succeeded + self.failed)

    @property
    def approval(self) -> int | None:
        """The share of approved calls among those that people approved or denied, in percent."""
        return _percent(self.approved, self.approved + self.denied)


def figures(readable: Q, agent: str) -> RunFigures:
    """Return the figures of the last runs of an agent that meet `readable`."""
    rows = list(
        Run.objects.filter(readable, agent=agent)
        .order_by("-id")
        .values_list("id", "status", "created_at", "ended_at")[:LAST]
    )
    statuses = Counter(status for _, status, _, _ in rows)
    times = sorted(ended - began for _, status, began, ended in rows if status in _GOOD and ended)
    verdicts: Mapping[str, int] = {}
    if rows:
        verdicts = wiring.approvals().verdicts([run for run, _, _, _ in rows])
    return RunFigures(
        runs=len(rows),
        succeeded=sum(statuses[one] for one in _GOOD),
        failed=sum(statuses[one] for one in _BAD),
        median=_quantile(times, 0.5),
        p95=_quantile(times, 0.95),
        approved=verdicts.get("approved", 0),
        denied=verdicts.get("denied", 0),
    )


def _percent(part: int, whole: int) -> int | None:
    return round(100 * part / whole) if whole else None


def _quantile(times: Sequence[timedelta], share: float) -> timedelta | None:
    """Return the smallest time that at least this share of the times do not exceed."""
    return times[ceil(share * len(times)) - 1] if times else None
