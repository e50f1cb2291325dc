"""Lists the instances of agents outside and the tokens that provision them, and reads what one says of its request."""

import json
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from django.db.models import Count, F, Q

from approvals import clock
from approvals.errors import UnknownInstance
from approvals.models import Approval, ApprovalUse, Instance, Token
from approvals.reads.approval_views import ApprovalView
from approvals.rights.principals import Scope
from approvals.rules.policy import Group
from approvals.signed import rows as signed_rows
from runtime.core.documents import external_call
from runtime.core.values.errors import NotJson
from runtime.models import Run
from runtime.reads.filters import terms

MAX_INSTANCES = 100  # instances on one page; a search finds the others
MAX_TOKENS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceRow:
    """An instance. `framework` is that of its last request, as it says; `open_requests` are those that have not ended.

    `state` is `active`, `ended`, `owner disabled`, or `not signed` for a row that another program wrote.
    """

    id: UUID
    name: str
    owner: str
    created_at: datetime
    last_request_at: datetime | None
    framework: str
    open_requests: int
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage:
    """Instances, those that ended last; `omitted` is the number of further matches."""

    items: tuple[InstanceRow, ...]
    omitted: int


def page(search: str = "") -> InstancePage:
    """List instances, the newest first. Every word of `search` must occur in the name or the owner, or be the id.

    Raise InvalidInput naming `q`.
    """
    condition = Q()
    for _, word in terms(search, ("",)):
        matching = Q(name__icontains=word) | Q(owner__username__icontains=word)
        with suppress(ValueError):
            matching |= Q(pk=UUID(word))
        condition &= matching
    matches = Instance.objects.filter(condition)
    ordered = matches.order_by(F("deleted_at").desc(nulls_first=True), "-created_at", "id")
    rows = list(ordered.select_related("owner")[:MAX_INSTANCES])
    counts = _open_requests(rows)
    omitted = matches.count() - len(rows) if len(rows) == MAX_INSTANCES else 0
    return InstancePage(items=tuple(_row(row, counts) for row in rows), omitted=omitted)


def read(instance: UUID) -> InstanceRow:
    """Return one instance. Raise UnknownInstance."""
    for row in Instance.objects.filter(pk=instance).select_related("owner"):
        return _row(row, _open_requests([row]))
    raise UnknownInstance


def provisioner_tokens() -> list[Token]:
    """Return the newest valid tokens that manage instances, of people who may."""
    rows = Token.objects.filter(
        Q(expires_at=None) | Q(expires_at__gt=clock.now()),
        scopes__contains=[Scope.INSTANCES_MANAGE],
        revoked_at=None,
        owner__is_active=True,
        owner__groups__name=Group.ADMINS,
    )
    return list(rows.select_related("owner").order_by("-created_at")[:MAX_TOKENS])


_OF_USE = ("used_at", "outcome", "note", "reported_at")


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


def claim_of(approval: ApprovalView) -> ExternalClaim | None:
    """Return what the instance says. None for other requests, and once the input of the run is removed."""
    if approval.tampered or approval.removed_at or not approval.is_external:
        return None
    rows = Run.objects.filter(pk=approval.run, removed_at=None, archived_at=None)
    text = rows.values_list("input", flat=True).first()
    if text is None:
        return None
    run_input = json.loads(text)
    try:
        context = external_call.field_of(run_input, "context")
    except NotJson:  # people read its text
        context = run_input["submitted"]["context"]
    at, valid_until = approval.effective_at or approval.decided_at, None
    if approval.status == Approval.Status.APPROVED and at is not None:
        valid_until = at + timedelta(seconds=external_call.valid_seconds(run_input))
    use = ApprovalUse.objects.filter(pk=approval.run).first()
    return ExternalClaim(
        instance=run_input["instance"],
        instance_name=run_input["instance_name"],
        framework=external_call.framework(run_input),
        context=context,
        valid_until=valid_until,
        **{name: getattr(use, name, None) for name in _OF_USE},
    )


def _open_requests(rows: Iterable[Instance]) -> dict[str, int]:
    ids = [str(row.id) for row in rows]
    open_runs: Any = Run.objects.filter(
        agent=external_call.AGENT, token__in=ids, ended_at=None
    ).order_by()
    return dict(open_runs.values_list("token").annotate(count=Count("id")))


def _row(row: Instance, counts: dict[str, int]) -> InstanceRow:
    if row.deleted_at is not None:
        state = "ended"
    elif not signed_rows.is_valid(row):
        state = "not signed"
    else:
        state = "active" if row.owner.is_active else "owner disabled"
    return InstanceRow(
        id=row.id,
        name=row.name,
        owner=row.owner.get_username(),
        created_at=row.created_at,
        last_request_at=row.last_request_at,
        framework=row.framework,
        open_requests=counts.get(str(row.id), 0),
        state=state,
    )
