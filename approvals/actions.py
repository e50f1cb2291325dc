"""Deciding: the one choke point for every door. Nobody else closes a request in a person's name.

The order of refusal is part of the contract: whoever may not read a request learns nothing about
it, whoever may not decide learns nothing about races or digests. Lock order: run, gate, request,
signal, audit.
"""

import hmac
import json
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from django.db import transaction

from approvals import audit, clock, endings, permissions, queries, results, statements
from approvals.errors import (
    AlreadyDecided,
    Cancelled,
    DigestMismatch,
    Expired,
    Invalid,
    TooEarly,
)
from approvals.models import Request
from runtime import engine
from runtime.core.decisions import VERDICTS, Decision, GateKind, Verdict
from runtime.errors import GateNotOpen, RunEnded
from runtime.models import Run
from runtime.ports import Actor

MAX_REASON = 2_000

# What `result` is when none was given: null is a result.
ABSENT: Final = object()

_NEEDS_REASON = {Verdict.DENY: "deny", Verdict.GIVE_UP: "give up"}


def decide(
    *, request: UUID, verdict: object, digest: object, reason: object, actor: Actor
) -> queries.Approval:
    """Approve or deny for good. The values come just as they came through the door.

    Raises, in this order: NotFound; Forbidden (`scope`, `requester`, `not_eligible`);
    AlreadyDecided with the winner, Cancelled or Expired; DigestMismatch; Invalid naming `digest`,
    `verdict` or `reason`. Nothing is written when it raises, but that time was faster.
    """

    def judge(row: Request, at: datetime) -> Decision:
        _check_digest(row, digest)
        chosen = _chosen(verdict, "verdict", GateKind.APPROVAL, row)
        return Decision(verdict=chosen, by=actor.person, reason=_checked_reason(reason, chosen))

    return _decide(lambda standing: queries.readable(request, standing), judge, actor)


def settle(
    *,
    run: UUID,
    gate: UUID,
    outcome: object,
    result: object = ABSENT,
    reason: object,
    actor: Actor,
) -> queries.Approval:
    """Say for good what became of a call in doubt: `happened`, `run_again` or `give_up`.

    `result` is a JSON value, given exactly if the call happened; it must fit the schema of what the
    tool returns. Raises, in this order: NotFound; Forbidden; AlreadyDecided, Cancelled or Expired;
    TooEarly with the time from which it can run again; Invalid naming `outcome`, `reason`, `result`
    or the place in it. Nothing is written when it raises.
    """

    def judge(row: Request, at: datetime) -> Decision:
        if outcome == Verdict.RUN_AGAIN and row.not_before is not None and at < row.not_before:
            raise TooEarly(row.not_before)
        chosen = _chosen(outcome, "outcome", GateKind.IN_DOUBT, row)
        return Decision(
            verdict=chosen,
            by=actor.person,
            reason=_checked_reason(reason, chosen),
            result=_checked_result(result, chosen, row),
        )

    return _decide(lambda standing: queries.settleable(run, gate, standing), judge, actor)


def _decide(
    find: Callable[[permissions.Standing | None], Request],
    judge: Callable[[Request, datetime], Decision],
    actor: Actor,
) -> queries.Approval:
    run = find(permissions.standing_of(actor)).run_id
    with transaction.atomic():
        Run.objects.select_for_update(no_key=True).only("id").get(pk=run)
        standing = permissions.standing_of(actor)  # again, now that nothing of the run can move
        row = find(standing)
        _check_right(row, standing)
        _check_still_open(row)
        at = clock.now()
        due = row.expires_at if endings.is_due(row, at) else None
        if due is None:
            decision = judge(row, at)
            _settle(row, decision)
            _close(row, decision, at)
            _audit(row, decision, actor)
        else:
            _expire(row, at)
    if due is not None:
        raise Expired(due)  # after it was written, so that nothing else can become of it
    return queries.plain(row, standing)


def _check_right(row: Request, standing: permissions.Standing | None) -> None:
    refusal = permissions.refusal(standing, requester=row.requester, risk=row.risk)
    if refusal is not None:
        raise refusal


def _check_still_open(row: Request) -> None:
    if row.status == Request.Status.CANCELLED:
        raise Cancelled(row.decided_by)
    if row.status == Request.Status.EXPIRED and row.expires_at is not None:
        raise Expired(row.expires_at)
    if row.status != Request.Status.PENDING:
        raise AlreadyDecided(row.decided_by)


def _check_digest(row: Request, digest: object) -> None:
    if not isinstance(digest, str):
        raise Invalid("digest", "must be the digest of the request you saw")
    if not _same(digest, row.request_digest):
        raise DigestMismatch


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(
        one.encode("utf-8", "surrogatepass"), other.encode("utf-8", "surrogatepass")
    )


def _chosen(value: object, field: str, kind: GateKind, row: Request) -> Verdict:
    if row.kind != kind:
        door = "settled at its gate" if kind is GateKind.APPROVAL else "approved or denied"
        raise Invalid(field, f"is not for this request, which is {door}")
    if value not in list(VERDICTS[kind]):
        raise Invalid(field, f"must be one of {', '.join(VERDICTS[kind])}")
    return Verdict(str(value))


def _checked_reason(reason: object, verdict: Verdict) -> str:
    """The reason verbatim: what the model hears and the audit keeps is what was written."""
    if reason is None:
        reason = ""
    if not isinstance(reason, str):
        raise Invalid("reason", "must be text")
    if len(reason) > MAX_REASON:
        raise Invalid("reason", f"must have at most {MAX_REASON} characters")
    if "\x00" in reason or any("\ud800" <= char <= "\udfff" for char in reason):
        raise Invalid("reason", "contains a character that is not text")
    if verdict in _NEEDS_REASON and not reason.strip():
        raise Invalid("reason", f"is required to {_NEEDS_REASON[verdict]}")
    return reason


def _checked_result(result: Any, verdict: Verdict, row: Request) -> Any:
    if verdict is not Verdict.HAPPENED:
        if result is not ABSENT and result is not None:
            raise Invalid("result", "is only for a call that happened")
        return None
    if result is ABSENT:
        raise Invalid("result", "is required if the call happened")
    results.check(result, None if row.result_schema is None else json.loads(row.result_schema))
    return result


def _settle(row: Request, decision: Decision) -> None:
    try:
        engine.settle(gate=row.gate, decision=decision)
    except (GateNotOpen, RunEnded) as exc:
        raise AlreadyDecided(None) from exc


def _expire(row: Request, at: datetime) -> None:
    try:
        endings.expire(row, at)
    except (GateNotOpen, RunEnded) as exc:
        raise AlreadyDecided(None) from exc


def _close(row: Request, decision: Decision, at: datetime) -> None:
    """The compare-and-set that makes one winner even if a door forgot the lock."""
    row.status = statements.STATUS[decision.verdict]
    row.decided_by, row.decided_at, row.reason = decision.by, at, decision.reason
    statements.sign(row, statements.make(row, decision, at))
    changed = Request.objects.filter(
        pk=row.pk, status=Request.Status.PENDING, request_digest=row.request_digest
    ).update(
        status=row.status,
        decided_by=row.decided_by,
        decided_at=at,
        reason=row.reason,
        statement=row.statement,
        signature=row.signature,
        key_id=row.key_id,
    )
    if changed != 1:
        winner = Request.objects.values_list("decided_by", flat=True).get(pk=row.pk)
        raise AlreadyDecided(winner)


def _audit(row: Request, decision: Decision, actor: Actor) -> None:
    audit.append(
        run=row.run_id,
        actor=actor,
        act=row.status,
        subject=f"request {row.id}",
        detail={
            "digest": row.request_digest,
            "verdict": decision.verdict,
            "reason": decision.reason,
        },
        at=row.decided_at,
    )
