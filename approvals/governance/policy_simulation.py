"""Says what a draft of the policy would have changed in the requests of the last 30 days."""

import json
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from approvals import clock
from approvals.governance import policies
from approvals.models import OF_CALL, Approval
from approvals.rules.judge import judge
from approvals.rules.policy import Demands, OnExpiry, Policy, demands_of
from runtime.core.values.enums import Risk

DAYS = 30
MOST = 1000  # newest requests
EXAMPLES = 20
SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedChange:
    """A request that the draft would have treated differently. `before` and `after` describe its demands."""

    approval_id: UUID
    sentence: str
    created_at: datetime
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """The result: of `tried` requests `changed` differ. `all` says that there were no more."""

    tried: int
    changed: int
    examples: tuple[SimulatedChange, ...]
    all: bool


def simulate(draft: Policy) -> Simulation:
    """Evaluate the newest requests for approval of the last 30 days by a draft, for at most SECONDS.

    A call that no person was asked about has no request, so a rule that would ask about it changes nothing here.
    """
    ends = time.monotonic() + SECONDS
    rows = Approval.objects.filter(
        OF_CALL,
        created_at__gt=clock.now() - timedelta(days=DAYS),
        removed_at=None,
    ).order_by("-created_at")[: MOST + 1]
    tried, changes = 0, list[SimulatedChange]()
    for approval in rows:
        if tried == MOST or time.monotonic() > ends:
            return _result(tried, changes, all=False)
        tried += 1
        try:
            before = _needs(demands_of(approval.rule), approval.risk)
            call = policies.facts_of(approval, json.loads(approval.args), Risk(approval.risk))
        except (ValueError, KeyError, TypeError):
            continue  # a row that cannot be read
        judgement = judge(draft, call)
        after = _needs(judgement.demands, judgement.risk)
        if before != after:
            change = SimulatedChange(
                approval_id=approval.id,
                sentence=approval.sentence,
                created_at=approval.created_at,
                before=before,
                after=after,
            )
            changes.append(change)
    return _result(tried, changes, all=True)


def _result(tried: int, changes: list[SimulatedChange], *, all: bool) -> Simulation:
    return Simulation(
        tried=tried, changed=len(changes), examples=tuple(changes[:EXAMPLES]), all=all
    )


def _needs(demands: Demands | None, risk: str) -> str:
    """Say what a request needs: how many people, of which stages, a reason, and what follows if no person decides."""
    if demands is None:
        return f"1 approval, {risk} risk"
    stages = ", then ".join(
        f"{stage.quorum} of {', '.join(_names(stage.keys))}" for stage in demands.stages
    )
    is_single = demands.quorum == 1 and not (demands.stages[0].groups or demands.stages[0].people)
    people = "1 approval" if is_single else f"approvals: {stages}"
    extras = ", with a reason" if demands.reason else ""
    extras += ", with a fresh second factor" if demands.step_up else ""
    extras += ", reviewers may write to the run" if demands.reviewer_may_write else ""
    for step in demands.escalate:
        extras += f", later also {', '.join(_names(step.keys))}"
    match demands.on_expiry:
        case OnExpiry.FAIL:
            extras += ", expiry fails the run"
        case OnExpiry.ANSWER:
            extras += ", expiry gives an answer"
    return f"{people}, {risk} risk{extras}"


def _names(keys: Iterable[str]) -> Iterable[str]:
    return (key.partition(":")[2] for key in keys)
