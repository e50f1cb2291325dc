"""Deciding: the one choke point for every door. Nobody else closes a request in a person's name.

The order of checks is part of the contract: whoever may not read a request learns nothing about
it, whoever may not decide learns nothing about races or digests. Lock order: run, gate, request,
signal, audit.
"""

import hmac
import json
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final
from uuid import UUID

from django.conf import settings
from django.db import transaction

from approvals import audit, clock
from approvals.accounts import log
from approvals.decisions import (
    budget_grants,
    closing,
    commit,
    results,
)
from approvals.errors import (
    AlreadyDecided,
    Cancelled,
    DigestMismatch,
    Expired,
    Invalid,
    NotDecided,
    NotFound,
    TamperedWith,
    TooEarly,
    TooLate,
)
from approvals.models import Request
from approvals.permissions import principals, request_rules
from approvals.queries import requests
from approvals.requests import verification
from runtime.control.settle import undo as undo_decision
from runtime.core.digest import is_text
from runtime.core.enums import (
    HALTS,
    VERDICTS,
    Decision,
    GateKind,
    Verdict,
)
from runtime.core.limits import MAX_REASON
from runtime.errors import GateNotOpen, RunEnded
from runtime.ports.access import Actor
from runtime.store import ledger

# What `result` is when none was given: null is a result.
ABSENT: Final = object()

_NEEDS_REASON = {
    Verdict.DENY: "deny",
    Verdict.GIVE_UP: "give up",
    Verdict.STOP: "stop the run",
}


def decide(
    *,
    request: UUID,
    verdict: object,
    digest: object,
    reason: object,
    actor: Actor,
    grant: object = None,
) -> requests.Approval:
    """Approve or deny a call, or let a halted frame `continue` or `stop` its run, for good.

    The values come just as they came through the door. `grant` is how much more of what a limit gate
    names, `{"turns": 10}`, where null takes a limit away.

    Raises, in this order: NotFound; Forbidden (`scope`, `requester`, `origin`, `not_eligible`, `given_by_origin`,
    `cooling_off`); AlreadyDecided with the winner, Cancelled or Expired; TamperedWith; DigestMismatch; Invalid
    naming `digest`, `verdict`, `reason` or `grant`. It writes nothing when it raises, except that Expired is recorded.
    """

    def judge(row: Request, at: datetime) -> Decision:
        _check_digest(row, digest)
        kind = GateKind(row.kind) if row.kind in HALTS else GateKind.APPROVAL
        chosen = _chosen(verdict, "verdict", kind, row)
        return Decision(
            verdict=chosen,
            by=actor.person,
            reason=_checked_reason(reason, chosen),
            result=budget_grants.check(row, chosen, grant),
        )

    hold = partial(audit.hold_run_of, request)
    return _decide(hold, partial(commit.look, request, actor), judge, actor)


def settle(
    *,
    run: UUID,
    gate: UUID,
    outcome: object,
    result: object = ABSENT,
    reason: object,
    actor: Actor,
) -> requests.Approval:
    """Say for good what became of a call in doubt: `happened`, `run_again` or `give_up`.

    `result` is a JSON value, given exactly if the call happened; it must fit the schema of what the
    tool returns. Raises, in this order: NotFound; Forbidden; AlreadyDecided, Cancelled or Expired;
    TamperedWith; TooEarly with the time from which it can run again; Invalid naming `outcome`, `reason`, `result`
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

    hold = partial(audit.hold, run)
    return _decide(hold, partial(commit.look_at_gate, run, gate, actor), judge, actor)


def undo(*, request: UUID, actor: Actor) -> requests.Approval:
    """Take one's own decision back, before it counts: people are asked again.

    Raises, in this order: NotFound; Forbidden; Cancelled or Expired; NotDecided; AlreadyDecided with the
    name of whoever did decide; TooLate. Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.hold_run_of(request)
        principal = principals.principal_of(actor)
        row = requests.readable(request, principal)
        _check_right(row, principal)
        _check_undoable(row, actor)
        try:
            undo_decision(gate=row.gate)
        except (GateNotOpen, RunEnded) as exc:
            raise TooLate from exc
        _reopen(row, actor)
        taken_back = ledger.undone(row.id, audit.undone(row))
    ledger.note(taken_back)  # after the commit, and before the caller answers
    return requests.plain(row, principal)


def _check_undoable(row: Request, actor: Actor) -> None:
    if row.status == Request.Status.PENDING:
        raise NotDecided
    if row.status in (Request.Status.CANCELLED, Request.Status.EXPIRED):
        _check_still_open(row)
    if row.decided_by != actor.person:
        raise AlreadyDecided(row.decided_by)
    if row.effective_at is None or row.effective_at <= clock.now():
        raise TooLate


def _reopen(row: Request, actor: Actor) -> None:
    verdict = row.status
    row.status = Request.Status.PENDING
    row.decided_by = row.decided_at = row.reason = None
    closing.forget_decision(row)
    row.save()
    audit.append(
        run=row.run_id,
        actor=actor,
        act=audit.UNDONE,
        subject=f"request {row.id}",
        detail={"digest": row.request_digest, "was": verdict},
    )


def _decide(
    hold: Callable[[], None],
    look: Callable[[], commit.Looked | None],
    judge: Callable[[Request, datetime], Decision],
    actor: Actor,
) -> requests.Approval:
    """Decide without a lock; if another act on the run comes in between, once more with its row held."""
    try:
        made = _attempt(look, judge, actor)
    except GateNotOpen:
        with transaction.atomic():
            hold()  # nothing of the run can move from here on
            try:
                made = _attempt(look, judge, actor)
            except GateNotOpen as exc:
                raise AlreadyDecided(None) from exc
    if isinstance(made, Expired):
        raise made  # after it was written, so that nothing else can become of it
    return made


def _attempt(
    look: Callable[[], commit.Looked | None],
    judge: Callable[[Request, datetime], Decision],
    actor: Actor,
) -> requests.Approval | Expired:
    """Raises GateNotOpen, with nothing written, if another act on the run came in between."""
    looked = look()
    if looked is None or not request_rules.reads(looked.principal, looked.request):
        raise NotFound
    row, at, principal = looked.request, looked.at, looked.principal
    _check_right(row, principal)
    _check_still_open(row)
    _check_untouched(row)
    decision = None if closing.is_due(row, at) else judge(row, at)
    if not looked.is_open:
        raise AlreadyDecided(None)
    if decision is None:
        return _expire(row, at)
    seconds = float(settings.ABEYANCE_UNDO_SECONDS)
    row.effective_at = at + timedelta(seconds=seconds) if seconds else None
    commit.close(looked, decision, actor)
    return requests.verified(row, principal)


def _check_right(row: Request, principal: principals.Principal | None) -> None:
    denial = request_rules.denial(principal, row)
    if denial is not None:
        log.refused(principal.person if principal else None, f"request {row.id}", denial.code)
        raise denial


def _check_still_open(row: Request) -> None:
    if row.status == Request.Status.CANCELLED:
        raise Cancelled(row.decided_by)
    if row.status == Request.Status.EXPIRED and row.expires_at is not None:
        raise Expired(row.expires_at)
    if row.status != Request.Status.PENDING:
        raise AlreadyDecided(row.decided_by)


def _check_untouched(row: Request) -> None:
    """Raise TamperedWith if the row is not the request that was asked, so that no decision about it is signed."""
    why = verification.fault(row)
    if why is not None:
        raise TamperedWith(why)


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
        door = "settled at its gate" if row.kind == GateKind.IN_DOUBT else "decided as it is"
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
    if not is_text(reason):
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


def _expire(row: Request, at: datetime) -> Expired:
    """Have time decide the request before it refuses the person. Raises GateNotOpen."""
    assert row.expires_at is not None  # it is due
    with transaction.atomic():
        audit.hold(row.run_id)
        closing.expire(row, at)
    return Expired(row.expires_at)
