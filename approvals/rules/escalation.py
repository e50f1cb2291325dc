"""Says what follows a request at which time: the steps of its escalation, then the consequence of its expiry. Pure.

All times follow from the demands and the last deadline of the request, and its digest covers both. So no process has
to escalate for people to be able to decide, and a worker that verifies a vote finds the same people as the web did.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from approvals.rules.policy import Demands, Escalation, OnExpiry, Stage

ESCALATE = "escalate"
BEGINNING = datetime.min.replace(tzinfo=UTC)  # before every step


@dataclass(frozen=True, slots=True, kw_only=True)
class NextStep:
    """The next step of a request, at `at`: a step of escalation to these groups and people, or its expiry.

    `step` is ESCALATE or an OnExpiry.
    """

    at: datetime
    step: str
    groups: tuple[str, ...] = ()
    people: tuple[str, ...] = ()


def begins(demands: Demands, expires_at: datetime) -> tuple[datetime, ...]:
    """Return the time at which each step of escalation begins; `expires_at` is the last deadline."""
    found, at = list[datetime](), expires_at
    for step in reversed(demands.escalate):
        at -= timedelta(seconds=step.seconds)
        found.append(at)
    return tuple(reversed(found))


def begun(demands: Demands, expires_at: datetime | None, at: datetime) -> int:
    """Return how many steps of escalation have begun. A request without a deadline has none."""
    return 0 if expires_at is None else sum(one <= at for one in begins(demands, expires_at))


def stages(demands: Demands, expires_at: datetime | None, at: datetime) -> tuple[Stage, ...]:
    """Return the stages with the people who may decide at this time.

    A step adds people to each stage. It takes none away: a request must not become harder to decide by itself.
    """
    steps = demands.escalate[: begun(demands, expires_at, at)]
    if not steps:
        return demands.stages
    return tuple(_widened(stage, steps) for stage in demands.stages)


def next_step(
    demands: Demands | None, expires_at: datetime | None, at: datetime
) -> NextStep | None:
    """Return the step that follows if no person decides; None without a deadline."""
    if expires_at is None:
        return None
    if demands is None:
        return NextStep(at=expires_at, step=OnExpiry.DENY)
    number = begun(demands, expires_at, at)
    if number == len(demands.escalate):
        return NextStep(at=expires_at, step=demands.on_expiry)
    then = demands.escalate[number]
    return NextStep(
        at=begins(demands, expires_at)[number],
        step=ESCALATE,
        groups=then.groups,
        people=then.people,
    )


def _widened(stage: Stage, steps: Sequence[Escalation]) -> Stage:
    if not (stage.groups or stage.people):
        return stage  # every reviewer may decide
    return replace(
        stage,
        groups=_merged(stage.groups, *(step.groups for step in steps)),
        people=_merged(stage.people, *(step.people for step in steps)),
    )


def _merged(*names: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for some in names for name in some))
