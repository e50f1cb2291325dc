"""Requests of agents outside. Each is a run whose one call an instance performs after people approved it.

There is no table of requests: the state is that of the run's approval, and ends once. A decision counts from the time
it can no longer be undone, which is never after the deadline. `approval_uses` has the use of an approval.
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
from django.db.models import Exists, OuterRef, Q, QuerySet

from approvals import clock
from approvals.errors import (
    AlreadyTerminal,
    IdempotencyConflict,
    TooManyPending,
)
from approvals.models import OF_CALL, Approval, ApprovalUse, AuditEntry, Instance
from approvals.people import instances
from approvals.people.tokens import hash_secret
from approvals.rights import principals
from approvals.rights.access import require
from approvals.rights.principals import Scope
from runtime.control import interventions
from runtime.control.start import create
from runtime.control.user_actions import atomic
from runtime.core.documents import external_call
from runtime.core.values import json_values
from runtime.core.values.json_values import Submitted
from runtime.core.values.limits import MAX_INPUT, size_of
from runtime.errors import BusinessKeyConflict, Forbidden, InvalidInput, NoSuchRun, RunEnded
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.store import failpoints, runs

LONGEST = timedelta(days=30)  # in which people may decide
# Requests of an instance whose runs have not ended; a few more if they come at once.
MAX_OPEN = 1000
CREATE = "aap_create"  # a failpoint
FIELDS = ("tool", "server", "agent_reasoning", "arguments", "context", "timeout")

_CANCELLED = "The agent outside that asked has cancelled its request."
_ENDED = "The agent outside that asked was ended."


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
    state: RequestState
    use: ApprovalUse | None

    @property
    def created_at(self) -> datetime:
        """When it was made."""
        return datetime.fromisoformat(self.input["created_at"])

    @property
    def deadline(self) -> datetime:
        """Until when people may decide."""
        return external_call.deadline(self.input)

    @property
    def usable_until(self) -> datetime:
        """Until when an approval may be used."""
        assert self.state.at is not None  # it is approved
        return self.state.at + timedelta(seconds=external_call.valid_seconds(self.input))


def ask(
    *, instance: Instance, key: str, submitted: Mapping[str, Submitted], timeout: timedelta
) -> tuple[ExternalRequest, bool]:
    """Start the run of a request, or find that of the same key; the second value says whether it is new.

    Raise Forbidden; InvalidInput naming a field; UnknownInstance; IdempotencyConflict; TooManyPending.
    """
    owner = instance.owner.get_username()
    business_key = f"aap:{instance.id}:{hash_secret(key)}"
    earlier = _find_earlier(owner, business_key, submitted)
    if earlier is not None:
        return read(instance=instance, request=earlier), False
    require_asking(owner)
    try:
        with atomic() as connection:
            instances.lock(instance.id)
            if _open_runs(owner, instance.id)[:MAX_OPEN].count() == MAX_OPEN:
                raise TooManyPending
            born, _ = runs.peek_start(connection)
            run_input = external_call.make_input(
                instance=str(instance.id),
                instance_name=instance.name,
                submitted=submitted,
                created_at=born.at,
                deadline=born.at + min(timeout, LONGEST),
                valid_seconds=settings.SIGNOFF_USE_SECONDS,
            )
            size = size_of(run_input)
            if size > MAX_INPUT:
                raise InvalidInput(
                    "arguments", f"the request is too large: at most {MAX_INPUT} bytes"
                )
            external_call.arguments(run_input)
            started = create(
                agent=external_call.AGENT,
                input=run_input,
                requester=Actor(person=owner, token=str(instance.id)),
                business_key=business_key,
                born=born,
            )
            deadline = external_call.deadline(run_input)
            instances.announce(instance, [started.run], deadline)
            failpoints.hit("written", CREATE, 0)
    except BusinessKeyConflict:  # the same request was sent twice at once
        earlier = _find_earlier(owner, business_key, submitted)
        assert earlier is not None  # runs are never deleted
        return read(instance=instance, request=earlier), False
    failpoints.hit("committed", CREATE, 0)
    instances.record_request(instance, external_call.framework(run_input))
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
        state=_state(run, external_call.deadline(run_input), clock.now()),
        use=ApprovalUse.objects.filter(pk=run.id).first(),
    )


def state_of(run: Run, now: datetime) -> RequestState:
    """Return the state of the request that a run stands for."""
    return _state(run, external_call.deadline(json.loads(run.input)), now)


def next_change(run: Run, now: datetime) -> datetime:
    """Return when a pending request ends at the latest, as it is now: a decision counts, or the time to decide ends."""
    times = [external_call.deadline(json.loads(run.input))]
    for approval in Approval.objects.filter(OF_CALL, run=run):
        times += [at for at in (approval.effective_at, approval.expires_at) if at is not None]
    return min(at for at in times if at > now)


def cancel(*, instance: Instance, request: UUID) -> ExternalRequest:
    """Cancel a pending request; a cancelled one stays so. Raise NoSuchRun, AlreadyTerminal."""
    _cancel(instance, request, instance.owner.get_username(), _CANCELLED)
    return read(instance=instance, request=request)


def end(*, instance: UUID, actor: Actor | None, any_owner: bool = True) -> int:
    """End an instance, and return how many pending requests of it are cancelled. `actor` None is the command line.

    Raise Forbidden, UnknownInstance.
    """
    instances.delete(instance=instance, actor=actor, any_owner=any_owner)
    row = Instance.objects.select_related("owner").get(pk=instance)
    owner, count = row.owner.get_username(), 0
    person = owner if actor is None else actor.person
    for run in _open_runs(owner, instance).values_list("id", flat=True):
        with suppress(AlreadyTerminal, NoSuchRun):  # it was decided before
            count += _cancel(row, run, person, _ENDED)
    return count


def count_pending(instance: UUID) -> int:
    """Count the requests of an instance that wait for people."""
    owner = User.objects.get(instances=instance).get_username()
    now = clock.now()
    decided = Approval.objects.filter(OF_CALL, run=OuterRef("pk")).filter(
        Q(status=Approval.Status.PENDING, expires_at__lte=now)
        | ~Q(status=Approval.Status.PENDING)
        & Q(Q(effective_at__lte=now) | Q(effective_at=None, decided_at__lte=now))
    )
    return _open_runs(owner, instance).exclude(Exists(decided)).count()


def require_asking(owner: str) -> None:
    """Raise Forbidden unless the owner of an instance may start runs."""
    principal = principals.principal_of(Actor(person=owner))
    if principal is None:
        raise Forbidden("not_eligible", "The owner of this instance may not act.")
    require(principal, Scope.RUNS_START)


def _cancel(instance: Instance, request: UUID, person: str, reason: str) -> bool:
    """Cancel a pending request in the name of a person. Return False if it was cancelled before."""
    with atomic() as connection:
        runs.locked_row(connection, read(instance=instance, request=request).id)
        external = read(instance=instance, request=request)
        if external.state.status is RequestStatus.PENDING:
            try:
                # Also for an owner who may no longer do so.
                interventions.cancel_for(run=request, reason=reason, actor=Actor(person=person))
            except RunEnded as exc:  # it failed
                raise AlreadyTerminal from exc
            return True
        if external.state.status is not RequestStatus.CANCELLED:
            raise AlreadyTerminal
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
        raise IdempotencyConflict
    texts: dict[str, str] = json.loads(run.input)["submitted"]
    before = {
        name: Submitted(value=json_values.read(text), text=text) for name, text in texts.items()
    }
    if json_values.fingerprint(before) != json_values.fingerprint(dict(submitted)):
        raise IdempotencyConflict
    return UUID(str(run.id))


def _state(run: Run, deadline: datetime, now: datetime) -> RequestState:
    """Return the first final state. A later approval, asked again after the first, does not change it."""
    for approval in Approval.objects.filter(OF_CALL, run=run).order_by("created_at", "id"):
        state = _state_of(approval, now)
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


def _state_of(approval: Approval, now: datetime) -> RequestState | None:
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
