"""Requests of agents outside. Each is a run whose one call an instance performs after people approved it.

There is no table of requests: the state is that of the run's approval, and ends once. A decision counts from the time
it can no longer be undone, which is never after the deadline.

The approval may be used for a fixed time, once: the row of its use is written in a transaction that verifies the signed
decision and wakes the run, whose call starts. Its outcome is told to the run.
"""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any
from uuid import UUID

from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals import clock, errors
from approvals.models import OF_CALL, Approval, ApprovalUse, AuditEntry, Instance
from approvals.people import instances
from approvals.people.tokens import hash_secret
from approvals.reads.approval_views import ApprovalView
from approvals.rights.principals import Scope
from runtime.control import interventions
from runtime.control.start import create
from runtime.control.user_actions import notify, open_transaction
from runtime.core.documents import external_call
from runtime.core.run.continuation import RunStatus
from runtime.core.values import json_values
from runtime.core.values.errors import NotJson
from runtime.core.values.ids import ROOT, make_call_id
from runtime.core.values.json_values import Submitted, is_equal, measure_size
from runtime.core.values.limits import MAX_INPUT, MAX_REPORTED
from runtime.core.values.texts import escape_text
from runtime.errors import BusinessKeyConflict, Forbidden, InvalidInput, NoSuchRun, RunEnded
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.ports.approvals import ApprovalVoid, NotConfirmed
from runtime.reads.labels import AAP_KEY
from runtime.store import failpoints, pool, runs
from runtime.store.tables import kill_switches, late_outcomes, signals, used_approvals, waits

LONGEST = timedelta(days=30)  # in which people may decide
# Requests of an instance whose runs have not ended; a few more if they come at once.
MAX_OPEN = 1000
CREATE, CONSUME, OUTCOME = "aap_create", "aap_consume", "aap_outcome"  # failpoints

_CANCELLED = "The agent outside that asked has cancelled its request."
_ENDED = "The agent outside that asked was ended."
# A suspended run has not received the decision yet, or asks people again.
_MAY_USE = (RunStatus.QUEUED, RunStatus.RUNNING, RunStatus.WAITING, RunStatus.SUSPENDED)


class RequestStatus(StrEnum):
    """The states of a request. All but `pending` are final."""

    PENDING = "pending"
    APPROVED = "approved"
    DENIED = "denied"
    EXPIRED = "expired"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestState:
    """The state of a request, since when, and what its instance is told."""

    status: RequestStatus
    at: datetime | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalRequest:
    """A request as its instance reads it. `input` is that of its run, with the fields as they were sent."""

    id: UUID
    input: dict[str, Any]
    created_at: datetime
    deadline: datetime  # until when people may decide
    state: RequestState
    use: ApprovalUse | None

    @property
    def usable_until(self) -> datetime:
        """Until when an approval may be used."""
        assert self.state.at is not None  # it is approved
        return self.state.at + timedelta(seconds=external_call.read_valid_seconds(self.input))


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalClaim:
    """The request of an agent outside. Its `framework` and its `context` are its claims, not checked.

    `valid_until` is the end of the time to use the approval, None unless it was approved. `outcome` is `succeeded` or
    `failed`, with the `note` of the agent; None without a report.
    """

    instance: str
    instance_name: str
    framework: str
    context: Any
    valid_until: datetime | None
    used_at: datetime | None
    outcome: str | None
    note: str | None
    reported_at: datetime | None


def ask(
    *, instance: Instance, key: str, submitted: Mapping[str, Submitted], timeout: timedelta
) -> tuple[ExternalRequest, bool]:
    """Start the run of a request, or find that of the same key; the second value says whether it is new.

    Raise Forbidden; InvalidInput naming a field; UnknownInstance; IdempotencyConflict; TooManyPending.
    """
    owner = instance.owner.get_username()
    business_key = f"{AAP_KEY}{instance.id}:{hash_secret(key)}"
    earlier = _find_earlier(owner, business_key, submitted)
    if earlier is not None:
        return read(instance=instance, request=earlier), False
    wiring.resolve_access().require(Actor(person=owner), Scope.RUNS_START)
    try:
        with open_transaction() as connection:
            instances.lock(instance.id)
            if _open_runs(owner, instance.id)[:MAX_OPEN].count() == MAX_OPEN:
                raise errors.TooManyPending
            born, _ = runs.peek_start(connection)
            run_input = {
                "instance": str(instance.id),
                "instance_name": instance.name,
                "submitted": {name: field.text for name, field in submitted.items()},
                "created_at": born.at.isoformat(),
                "deadline_at": (born.at + min(timeout, LONGEST)).isoformat(),
                "valid_seconds": settings.SIGNOFF_USE_SECONDS,  # in which an approval may be used
            }
            size = measure_size(run_input)
            if size > MAX_INPUT:
                raise InvalidInput(
                    "arguments", f"the request is too large: at most {MAX_INPUT} bytes"
                )
            external_call.read_call_arguments(run_input)
            started = create(
                agent=external_call.AGENT,
                input=run_input,
                requester=Actor(person=owner, token=str(instance.id)),
                business_key=business_key,
                born=born,
            )
            deadline = external_call.read_deadline(run_input)
            instances.announce(instance, [started.run], deadline)
            failpoints.hit("written", CREATE, 0)
    except BusinessKeyConflict:  # the same request was sent twice at once
        return ask(instance=instance, key=key, submitted=submitted, timeout=timeout)
    failpoints.hit("committed", CREATE, 0)
    instances.record_request(instance, external_call.read_framework(run_input))
    return read(instance=instance, request=started.run), True


def read(*, instance: Instance, request: UUID) -> ExternalRequest:
    """Return a request of this instance. Raise NoSuchRun for any other run."""
    run = Run.objects.filter(
        pk=request, agent=external_call.AGENT, token=str(instance.id), removed_at=None
    ).first()
    if run is None or run.archived_at is not None:
        raise NoSuchRun
    run_input: dict[str, Any] = json.loads(run.input)
    return ExternalRequest(
        id=run.id,
        input=run_input,
        created_at=datetime.fromisoformat(run_input["created_at"]),
        deadline=external_call.read_deadline(run_input),
        state=read_state(run, clock.read_time()),
        use=ApprovalUse.objects.filter(pk=run.id).first(),
    )


def read_state(run: Run, now: datetime) -> RequestState:
    """Return the first final state of the request that a run stands for.

    A later approval, asked again after the first, does not change it.
    """
    deadline = external_call.read_deadline(json.loads(run.input))
    for approval in Approval.objects.filter(OF_CALL, run=run).order_by("created_at", "id"):
        state = _find_approval_state(approval, now)
        if state is not None and state.at is not None and state.at <= deadline:
            return state
    # It may have been cancelled before people were asked.
    acts = AuditEntry.objects.filter(run=run, act="cancelled", subject=f"run {run.id}")
    cancelled_at = acts.order_by("seq").values_list("at", flat=True).first()
    if cancelled_at is not None and cancelled_at < deadline:
        return RequestState(status=RequestStatus.CANCELLED, at=cancelled_at)
    if now >= deadline:
        return RequestState(status=RequestStatus.EXPIRED, at=deadline)
    return RequestState(status=RequestStatus.PENDING)


def read_next_change(run: Run, now: datetime) -> datetime:
    """Return when a pending request ends at the latest, as it is now: a decision counts, or the time to decide ends."""
    times = [external_call.read_deadline(json.loads(run.input))]
    for approval in Approval.objects.filter(OF_CALL, run=run):
        times += [at for at in (approval.effective_at, approval.expires_at) if at is not None]
    return min(at for at in times if at > now)


def cancel(*, instance: Instance, request: UUID) -> ExternalRequest:
    """Cancel a pending request; a cancelled one stays so. Raise NoSuchRun, AlreadyTerminal."""
    _cancel(instance, request, instance.owner.get_username(), _CANCELLED)
    return read(instance=instance, request=request)


def use(*, instance: Instance, request: UUID, key: str) -> ExternalRequest:
    """Use the approval of a request: its call starts. The same key again gives the same answer.

    Raise NoSuchRun; UnknownInstance; AlreadyUsed; NotApproved; ApprovalExpired; NotReady while the run has not received
    the decision.
    """
    run_id = read(instance=instance, request=request).id
    try:
        with open_transaction() as connection:
            status = runs.lock_row(connection, run_id).status
            external = read(instance=instance, request=request)
            rows = Approval.objects.filter(OF_CALL, run=run_id).order_by("-created_at", "-id")
            approval = rows.first()  # the last that people were asked for
            if approval is None:
                raise errors.NotApproved
            if external.use is None:
                instances.lock(instance.id)
                _check_usable(instance, external, status, approval)
                wait = _find_wait(connection, run_id)
                if wait is None:
                    raise errors.NotReady
                used_approvals.require_unspent(run_id, [(approval.gate, 0)])
                at = clock.read_time()
                if not used_approvals.add(connection, external.id, approval.gate):
                    raise errors.AlreadyUsed
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
                raise errors.AlreadyUsed
    except _Void as exc:
        _audit(instance, run_id, "use refused", str(exc))
        raise errors.NotApproved from exc
    failpoints.hit("committed", CONSUME, 0)
    line = used_approvals.format_spent_line(run_id, (approval.gate, 0))
    # Also if the use is older: the process that wrote it may have died before this.
    if external.use is None or not used_approvals.has_fact(line):
        used_approvals.record_fact(line)
    return read(instance=instance, request=request)


def report(
    *, instance: Instance, request: UUID, succeeded: bool, note: str | None
) -> ExternalRequest:
    """Report the outcome of the call of a used approval, once. Raise NoSuchRun, NotUsed, OutcomeConflict.

    Only text that the run can keep of the note is kept, so that no outcome is lost by its note.
    """
    run_id = read(instance=instance, request=request).id
    note = None if note is None else escape_text(note)[:MAX_REPORTED]
    outcome = "succeeded" if succeeded else "failed"
    with open_transaction() as connection:
        runs.lock_row(connection, run_id)
        external = read(instance=instance, request=request)
        if external.use is None:
            raise errors.NotUsed
        if external.use.outcome is not None:
            if (external.use.outcome, external.use.note) != (outcome, note):
                raise errors.OutcomeConflict
            return external
        at = clock.read_time()
        ApprovalUse.objects.filter(pk=run_id, outcome=None).update(
            outcome=outcome, note=note, reported_at=at
        )
        _deliver(connection, external.use, outcome, note or "", at)
        _audit(instance, run_id, "reported", outcome)
        failpoints.hit("written", OUTCOME, 0)
    failpoints.hit("committed", OUTCOME, 0)
    return read(instance=instance, request=request)


def end_instance(*, instance: UUID, actor: Actor | None, any_owner: bool = True) -> int:
    """End an instance, and return how many pending requests of it are cancelled. `actor` None is the command line.

    Raise Forbidden, UnknownInstance.
    """
    instances.delete(instance=instance, actor=actor, any_owner=any_owner)
    # A process that dies from here on leaves requests, which the next end cancels: the page offers it.
    row = Instance.objects.select_related("owner").get(pk=instance)
    owner, count = row.owner.get_username(), 0
    person = owner if actor is None else actor.person
    for run in _open_runs(owner, instance).values_list("id", flat=True):
        with suppress(errors.AlreadyTerminal, NoSuchRun):  # it was decided before
            count += _cancel(row, run, person, _ENDED)
    return count


def count_pending(instance: UUID) -> int:
    """Count the requests of an instance that wait for people."""
    owner = User.objects.get(instances=instance).get_username()
    states = (read_state(run, clock.read_time()) for run in _open_runs(owner, instance))
    return sum(state.status is RequestStatus.PENDING for state in states)


def read_claim(approval: ApprovalView) -> ExternalClaim | None:
    """Return what the instance says. None for other requests, and once the input of the run is removed."""
    if approval.tampered or approval.removed_at or not approval.is_external:
        return None
    rows = Run.objects.filter(pk=approval.run, removed_at=None, archived_at=None)
    text = rows.values_list("input", flat=True).first()
    if text is None:
        return None
    run_input = json.loads(text)
    try:
        context = external_call.read_submitted_field(run_input, "context")
    except NotJson:  # people read its text
        context = run_input["submitted"]["context"]
    at, valid_until = approval.effective_at or approval.decided_at, None
    if approval.status == Approval.Status.APPROVED and at is not None:
        valid_until = at + timedelta(seconds=external_call.read_valid_seconds(run_input))
    use = ApprovalUse.objects.filter(pk=approval.run).first()
    return ExternalClaim(
        instance=run_input["instance"],
        instance_name=run_input["instance_name"],
        framework=external_call.read_framework(run_input),
        context=context,
        valid_until=valid_until,
        **{
            name: getattr(use, name, None) for name in ("used_at", "outcome", "note", "reported_at")
        },
    )


def _cancel(instance: Instance, request: UUID, person: str, reason: str) -> bool:
    """Cancel a pending request in the name of a person. Return False if it was cancelled before."""
    with open_transaction() as connection:
        runs.lock_row(connection, read(instance=instance, request=request).id)
        external = read(instance=instance, request=request)
        if external.state.status is RequestStatus.PENDING:
            try:
                # Also for an owner who may no longer do so.
                interventions.cancel_for(run=request, reason=reason, actor=Actor(person=person))
            except RunEnded as exc:  # it failed
                raise errors.AlreadyTerminal from exc
            return True
        if external.state.status is not RequestStatus.CANCELLED:
            raise errors.AlreadyTerminal
    return False


def _open_runs(owner: str, instance: UUID) -> QuerySet[Run]:
    return Run.objects.filter(
        agent=external_call.AGENT, requester=owner, token=str(instance), ended_at=None
    )


def _find_earlier(owner: str, business_key: str, submitted: Mapping[str, Submitted]) -> UUID | None:
    """Return the run of this key, None if there is none. Raise IdempotencyConflict if its fields differ."""
    run = Run.objects.filter(
        agent=external_call.AGENT, requester=owner, business_key=business_key
    ).first()
    if run is None:
        return None
    if run.removed_at is not None or run.archived_at is not None:
        raise errors.IdempotencyConflict
    texts: dict[str, str] = json.loads(run.input)["submitted"]
    before = {
        name: Submitted(value=json_values.read(text), text=text) for name, text in texts.items()
    }
    if json_values.hash_fields(before) != json_values.hash_fields(dict(submitted)):
        raise errors.IdempotencyConflict
    return UUID(str(run.id))


def _find_approval_state(approval: Approval, now: datetime) -> RequestState | None:
    """Return what the decision of an approval means to the instance, None while there is none that counts."""
    at = approval.effective_at or approval.decided_at
    if approval.status == Approval.Status.PENDING:
        expires_at = approval.expires_at
        is_over = expires_at is not None and expires_at <= now
        return RequestState(status=RequestStatus.EXPIRED, at=expires_at) if is_over else None
    if at is None or at > now:
        return None
    match approval.status:
        case Approval.Status.APPROVED if approval.edited is None:
            return RequestState(status=RequestStatus.APPROVED, at=at)
        case Approval.Status.EXPIRED:
            return RequestState(status=RequestStatus.EXPIRED, at=approval.expires_at)
        case Approval.Status.CANCELLED:
            return RequestState(status=RequestStatus.CANCELLED, at=at)
        case _:
            return RequestState(status=RequestStatus.DENIED, at=at, note=approval.reason or "")


class _Void(Exception):
    """The approval does not count any more; the text says why."""


def _check_usable(
    instance: Instance, external: ExternalRequest, status: str, approval: Approval
) -> None:
    """Check that this approval lets the call start now. Raise NotApproved, ApprovalExpired, _Void."""
    if external.state.status is not RequestStatus.APPROVED:
        raise errors.NotApproved
    if clock.read_time() >= external.usable_until:
        raise errors.ApprovalExpired
    stopped = kill_switches.list_stopped_agents(pool.use_django_connection())
    if status not in _MAY_USE or stopped & {kill_switches.EVERY_AGENT, external_call.AGENT}:
        raise errors.NotApproved
    if not is_equal(json.loads(approval.args), external_call.read_call_arguments(external.input)):
        raise _Void("the approved arguments differ from those of the request")
    try:
        owner = Actor(person=instance.owner.get_username())
        wiring.resolve_access().require(owner, Scope.RUNS_START)
        wiring.resolve_approvals().verify_approval(
            gate=approval.gate,
            action_digest=approval.action_digest,
            origin=runs.read_origin(pool.use_django_connection(), external.id),
        )
    except (ApprovalVoid, NotConfirmed, Forbidden) as exc:
        raise _Void(str(exc)) from exc


def _deliver(
    connection: pool.Connection, used: ApprovalUse, outcome: str, note: str, at: datetime
) -> None:
    """Tell the run its outcome: the call that still waits, or as a late one. An ended run is told nothing."""
    try:
        runs.notify_signal(connection, used.run)
    except RunEnded:
        return
    wait = _find_wait(connection, used.run)
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
            late_outcomes.LateOutcomeRow(
                run=used.run,
                frame=ROOT,
                call=make_call_id(1, 0),
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


def _find_wait(connection: pool.Connection, run: UUID) -> waits.EventWait | None:
    """Return the wait of the run's call, None before it has begun or after it has ended."""
    for frame, call in waits.list_open_waits(connection, run):
        return waits.EventWait(run=run, frame=frame, call=call)
    return None


def _audit(instance: Instance, run: UUID, act: str, reason: str | None) -> None:
    """Write the audit row of what an instance did. It acts in the name of its owner."""
    actor = Actor(person=instance.owner.get_username(), token=str(instance.id))
    with open_transaction():
        wiring.resolve_approvals().record_audit(
            run=run, actor=actor, act=act, detail={"reason": reason}
        )
