"""Records an admin's decision that all waiting runs of a change of an agent continue.

The decision is signed for the pair of versions, and recorded at each run's own gate by `decide`, with its checks. So a
run that this admin may not decide stays. Runs that reach the same change later continue by the signed decision, until
an admin withdraws it.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

import psycopg
from django.db import OperationalError

from approvals import clock
from approvals.decisions.decide import decide
from approvals.decisions.undo import take_back
from approvals.errors import ApprovalError, NotFound
from approvals.governance import version_changes
from approvals.governance.version_changes import VersionPair, WaitingRun
from approvals.models import VersionDecision, VersionWithdrawal
from approvals.rights import principals
from approvals.rights.principals import Scope
from approvals.signed import audit
from approvals.signed import rows as signed_rows
from runtime.control.access import validate_text
from runtime.core.values.enums import Verdict
from runtime.core.values.json_values import is_text
from runtime.core.values.limits import MAX_REASON
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

logger = logging.getLogger(__name__)

NEEDS_REASON = "is required to continue all these runs"
PASSES = 2  # over the gates of a withdrawal
BUSY = (OperationalError, psycopg.OperationalError)  # a lock was not granted in time
STAYS = "Its run was busy. Continue this change again."


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """A run that stays at its version gate, and why."""

    run: UUID
    approval_id: UUID
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """The number of runs that continue, and those that stay."""

    continued: int
    left: tuple[Left, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawn:
    """The number of gates that opened again, and of those that did not, because their runs were busy."""

    opened: int
    left: int


def continue_all(
    *, agent: object, before: object, after: object, count: object, reason: object, actor: Actor
) -> Decided:
    """Let every waiting run of this change continue, and every run that reaches it later.

    `count` confirms the number of waiting runs. A busy run stays, until an admin continues this change again. Raises,
    in this order: NotFound for a person who is no admin; Forbidden for an admin who may not decide at version gates;
    NotFound if no run waits for this change; InvalidInput naming `after` if a version was never published, `count` or
    `reason`.
    """
    principal = principals.principal_of(actor)
    if principal is None or not principal.has(Scope.ADMIN):
        raise NotFound
    denial = version_changes.refusal(principal)
    if denial is not None:
        audit.log_refusal(actor.person, "versions of agents", denial.code)
        raise denial
    waiting = version_changes.find(_pair(agent, before, after), principal)
    if waiting is None:
        raise NotFound
    if waiting.differences is None:
        raise InvalidInput(
            "after",
            "names a version that was never published, or `before` does: decide each run on its own page",
        )
    if isinstance(count, bool) or not isinstance(count, int) or count != waiting.count:
        raise InvalidInput("count", f"must be the number of waiting runs, which is {waiting.count}")
    reason = validate_text("reason", reason, MAX_REASON, required=NEEDS_REASON)
    _record(waiting.pair, waiting.count, reason, actor)
    left_out = [left for run in waiting.runs if (left := _decide(run, reason, actor)) is not None]
    return Decided(continued=waiting.count - len(left_out), left=tuple(left_out))


def withdraw(
    *, agent: object, before: object, after: object, reason: object, actor: Actor
) -> Withdrawn:
    """Withdraw the decision on this change: runs that reach it later ask again, each at its own gate.

    The gates that it decided, and where it is not final yet, open again. If runs were busy, another withdrawal opens
    the gates that are left. Any admin may withdraw it, because that lets no run continue. Raises NotFound for a person
    who is no admin, and if no decision on this change counts and no gate is left; InvalidInput naming `reason`.
    """
    principal = principals.principal_of(actor)
    if principal is None or not principal.has(Scope.ADMIN):
        raise NotFound
    pair = _pair(agent, before, after)
    counts, gates = version_changes.decision(pair) is not None, version_changes.to_undo(pair)
    if not counts and not gates:
        raise NotFound
    reason = validate_text(
        "reason", reason, MAX_REASON, required="is required to withdraw a decision"
    )
    if counts:
        signed_rows.add(
            VersionWithdrawal(
                agent=pair.agent,
                before=pair.before,
                after=pair.after,
                by=actor.person,
                token=actor.token,
                reason=reason,
                at=clock.now(),
            )
        )
        audit.log_change(
            actor.person,
            f"withdrew the decision to continue {pair.agent} from {pair.before} under {pair.after}",
        )
    return _open_again({gate: decision.by for gate, decision in gates.items()}, actor)


def _open_again(gates: Mapping[UUID, str], actor: Actor) -> Withdrawn:
    """Take back each gate's decision by this person, in a transaction of its own: a busy run holds up no other gate."""
    count = 0
    for _ in range(PASSES):
        busy = {}
        for gate, by in gates.items():
            try:
                count += take_back(approval_id=gate, by=by, actor=actor)
            except BUSY:
                logger.warning(
                    "The decision of request %s is not taken back yet", gate, exc_info=True
                )
                busy[gate] = by
        gates = busy
    return Withdrawn(opened=count, left=len(gates))


def _pair(agent: object, before: object, after: object) -> VersionPair:
    if not isinstance(agent, str) or not isinstance(before, str) or not isinstance(after, str):
        raise NotFound
    if not all(is_text(text) for text in (agent, before, after)):
        raise NotFound  # Postgres refuses it
    return VersionPair(agent=agent, before=before, after=after)


def _record(pair: VersionPair, count: int, reason: str, actor: Actor) -> None:
    signed_rows.add(
        VersionDecision(
            agent=pair.agent,
            before=pair.before,
            after=pair.after,
            by=actor.person,
            token=actor.token,
            reason=reason,
            count=count,
            at=clock.now(),
            withdrawn=version_changes.withdrawals(pair),
        )
    )
    audit.log_change(
        actor.person,
        f"continued {count} runs of {pair.agent} from {pair.before} under {pair.after}",
    )


def _decide(run: WaitingRun, reason: str, actor: Actor) -> Left | None:
    """Decide one gate; return why it stays."""
    try:
        decide(
            approval_id=run.approval_id,
            verdict=Verdict.CONTINUE,
            digest=run.digest,
            reason=reason,
            actor=actor,
        )
    except (ApprovalError, Forbidden, InvalidInput) as exc:
        return Left(run=run.run, approval_id=run.approval_id, reason=str(exc))
    except BUSY:
        logger.warning("The version gate %s is not decided yet", run.approval_id, exc_info=True)
        return Left(run=run.run, approval_id=run.approval_id, reason=STAYS)
    return None
