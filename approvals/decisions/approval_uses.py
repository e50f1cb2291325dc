"""The use of an approval by the agent outside that asked: its call starts, once, and its outcome is told to the run.

The approval may be used for a fixed time: the row of its use is written in a transaction that verifies the signed
decision and wakes the run.
"""

import json
from datetime import datetime
from uuid import UUID

from approvals import clock
from approvals.decisions.external_requests import (
    ExternalRequest,
    RequestStatus,
    read,
    require_asking,
)
from approvals.errors import (
    AlreadyUsed,
    ApprovalExpired,
    NotApproved,
    NotReady,
    NotUsed,
    OutcomeConflict,
)
from approvals.models import OF_CALL, Approval, ApprovalUse, Instance
from approvals.people.tokens import hash_secret
from runtime.control.user_actions import atomic, notify
from runtime.core.documents import external_call
from runtime.core.run.continuation import RunStatus
from runtime.core.values.ids import ROOT, call_id
from runtime.core.values.json_values import is_equal
from runtime.core.values.limits import escape_text
from runtime.errors import Forbidden, RunEnded
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from runtime.store import failpoints, pool, runs
from runtime.store.pool import Connection
from runtime.store.tables import kill_switches, late_outcomes, signals, used_approvals, waits
from runtime.store.tables.late_outcomes import LateOutcomeRow
from runtime.store.tables.waits import EventWait

CONSUME, OUTCOME = "aap_consume", "aap_outcome"  # failpoints

# A suspended run has not received the decision yet, or asks people again.
_MAY_USE = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.SUSPENDED)


def use(*, instance: Instance, request: UUID, key: str) -> ExternalRequest:
    """Use the approval of a request: its call starts. The same key again gives the same answer.

    Raise NoSuchRun; AlreadyUsed; NotApproved; ApprovalExpired; NotReady while the run has not received the decision.
    """
    run_id = read(instance=instance, request=request).id
    try:
        with atomic() as connection:
            status = runs.locked_row(connection, run_id).status
            external = read(instance=instance, request=request)
            rows = Approval.objects.filter(OF_CALL, run=run_id).order_by("-created_at", "-id")
            approval = rows.first()  # the last that people were asked for
            if approval is None:
                raise NotApproved
            if external.use is None:
                _check_usable(instance, external, status, approval)
                wait = _wait_of(connection, run_id)
                if wait is None:
                    raise NotReady(instance.id)
                used_approvals.require_unspent(run_id, [(approval.gate, 0)])
                at = clock.now()
                if not used_approvals.add(connection, external.id, approval.gate):
                    raise AlreadyUsed
                ApprovalUse.objects.create(
                    run=external.id, instance=instance, idempotency_key=hash_secret(key), used_at=at
                )
                runs.notify_signal(connection, external.id)
                use = signals.EventSignal(frame=wait.frame, call=wait.call, result={}, used_at=at)
                signals.send(connection, external.id, use)
                _audit(instance, external.id, "used", None)
                notify(external.id)
                failpoints.hit("written", CONSUME, 0)
            elif external.use.idempotency_key != hash_secret(key):
                raise AlreadyUsed
    except _Void as exc:
        _audit(instance, run_id, "use refused", str(exc))
        raise NotApproved from exc
    failpoints.hit("committed", CONSUME, 0)
    line = used_approvals.spent_line(run_id, (approval.gate, 0))
    # Also if the use is older: the process that wrote it may have died before this.
    if external.use is None or not used_approvals.contains(line):
        used_approvals.record(line)
    return read(instance=instance, request=request)


def report(
    *, instance: Instance, request: UUID, succeeded: bool, note: str | None
) -> ExternalRequest:
    """Report the outcome of the call of a used approval, once. Raise NoSuchRun, NotUsed, OutcomeConflict."""
    run_id = read(instance=instance, request=request).id
    outcome = "succeeded" if succeeded else "failed"
    with atomic() as connection:
        runs.locked_row(connection, run_id)
        external = read(instance=instance, request=request)
        if external.use is None:
            raise NotUsed
        if external.use.outcome is not None:
            if (external.use.outcome, external.use.note) != (outcome, note):
                raise OutcomeConflict
            return external
        at = clock.now()
        ApprovalUse.objects.filter(pk=run_id, outcome=None).update(
            outcome=outcome, note=note, reported_at=at
        )
        _deliver(connection, external.use, outcome, escape_text(note or ""), at)
        _audit(instance, run_id, "reported", outcome)
        failpoints.hit("written", OUTCOME, 0)
    failpoints.hit("committed", OUTCOME, 0)
    return read(instance=instance, request=request)


class _Void(Exception):
    """The approval does not count any more; the text says why."""


def _check_usable(
    instance: Instance, external: ExternalRequest, status: str, approval: Approval
) -> None:
    """Check that this approval lets the call start now. Raise NotApproved, ApprovalExpired, _Void."""
    if external.state.status is not RequestStatus.APPROVED:
        raise NotApproved
    if clock.now() >= external.usable_until:
        raise ApprovalExpired
    stopped = kill_switches.stopped_agents(pool.djangos())
    if status not in _MAY_USE or stopped & {kill_switches.EVERY_AGENT, external_call.AGENT}:
        raise NotApproved
    if not is_equal(json.loads(approval.args), external_call.arguments(external.input)):
        raise _Void("the approved arguments differ from those of the request")
    try:
        require_asking(instance.owner.get_username())
        wiring.approvals().verify_approval(
            gate=approval.gate,
            action_digest=approval.action_digest,
            origin=runs.origin(pool.djangos(), external.id),
        )
    except (ApprovalVoid, NotConfirmed, Forbidden) as exc:
        raise _Void(str(exc)) from exc


def _deliver(
    connection: Connection, used: ApprovalUse, outcome: str, note: str, at: datetime
) -> None:
    """Tell the run its outcome: the call that still waits, or as a late one. An ended run is told nothing."""
    try:
        runs.notify_signal(connection, used.run)
    except RunEnded:
        return
    wait = _wait_of(connection, used.run)
    failed = outcome == "failed"
    result = {"status": outcome, **({"note": note} if note else {})}
    error = note or "the agent outside reported a failure"
    if wait is not None and waits.complete(connection, wait):
        reported = {"error": error} if failed else result
        signal = signals.EventSignal(
            frame=wait.frame, call=wait.call, result=reported, failed=failed
        )
        signals.send(connection, used.run, signal)
    else:
        late_outcomes.insert(
            connection,
            LateOutcomeRow(
                run=used.run,
                frame=ROOT,
                call=call_id(1, 0),
                attempt=0,
                started_at=used.used_at,
                worker=used.instance_id,
                at=at,
                outcome="failed" if failed else "returned",
                result=None if failed else result,
                error=error if failed else "",
            ),
        )
    notify(used.run)


def _wait_of(connection: Connection, run: UUID) -> EventWait | None:
    """Return the wait of the run's call, None before it has begun or after it has ended."""
    for frame, call in waits.open_of(connection, run):
        return EventWait(run=run, frame=frame, call=call)
    return None


def _audit(instance: Instance, run: UUID, act: str, reason: str | None) -> None:
    """Write the audit row of what an instance did. It acts in the name of its owner."""
    actor = Actor(person=instance.owner.get_username(), token=str(instance.id))
    with atomic():
        wiring.approvals().record_audit(run=run, actor=actor, act=act, detail={"reason": reason})
