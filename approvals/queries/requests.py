"""Reads the approvals that an actor may read, as plain data, in a few queries."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from django.db.models import Q, QuerySet
from django.utils import timezone

from approvals.errors import NotFound, TamperedWith
from approvals.models import Approval, approval_rows
from approvals.queries import cursors
from approvals.requests import confirmation, schemas, verification, writers
from approvals.rights import approvals as request_rules
from approvals.rights import principals
from approvals.rules import escalation
from approvals.rules.escalation import NextStep
from approvals.rules.policy import Demands, OnExpiry, demands_of
from approvals.signed import statements
from runtime.core.run.continuation import merge_people
from runtime.core.values.enums import GateKind
from runtime.core.values.ids import turn_of
from runtime.core.values.verdicts import BEFORE_CALL
from runtime.errors import Forbidden, InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.ports.approvals import NotConfirmed
from runtime.reads.runs import Page

ANY = "any"  # of every kind
STATUSES = tuple(Approval.Status.values)

LIMIT = 50
MAX_LIMIT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalView:
    """One request of any kind. `path` goes from the root agent to the tool.

    `args`, the schemas and `preview`, what the worker found out about the call (see ReviewSnapshot), are JSON values.
    `edited` are the arguments of an approval with changes, `edited_preview` what the call does with them as its
    approver saw it, else None.
    `result_schema` is the schema of a result to report in doubt or to give instead of the call, None if the tool has
    none. `expires_at` is the deadline; a call in doubt may run again from `not_before`. `digest` is the request
    digest, which a decision must name. `denial` is the reason why this actor may not decide, at any status (`scope`,
    `requester`, `origin`, `not_eligible`, `given_by_origin` or `cooling_off`), None if they may. `origin` lists the
    people in the run's origin, with the requester: they cannot decide. `confirm` is the name that an approval must
    repeat, None without a second step and for a closed request. Retention removed the arguments and the sentence at
    `removed_at`. `tampered` names the first value of the row that does not verify, None if all do. Such a row is shown
    as stored, cannot be decided, and its `args` may be text. `demands` are those of the policy's rule, None under the
    default policy; `voted` lists who approved. `acts_for` names the absent person in whose place this actor decides,
    `decided_for` the one in whose place the decider did; None for themselves. `changes_requested` says that it was
    denied with a request for changes. `revises` is the gate of the request that this one revises as number `revision`;
    a first proposal has None and 1.
    `allowance` passed the call, as its use number `allowance_use`. `next_at` is when the next step was
    due as the sweeper last saw it, for the order of lists; `undecidable_at` since when too few people are left.
    `holds` says that reviewers alone may read its arguments, `sees_held` that this reader is one of them.
    """

    id: UUID
    run: UUID
    gate: UUID
    kind: str
    frame: str
    call: str
    tool: str
    args: Any
    edited: Any
    edited_preview: Any
    schema: Any
    result_schema: Any
    preview: Any
    path: tuple[str, ...]
    effect: str
    risk: str
    sentence: str
    status: str
    digest: str
    requester: str
    origin: tuple[str, ...]
    created_at: datetime
    expires_at: datetime | None
    not_before: datetime | None
    decided_by: str | None
    decided_at: datetime | None
    effective_at: datetime | None
    reason: str | None
    removed_at: datetime | None
    confirm: str | None
    denial: Forbidden | None
    tampered: str | None
    policy_version: str
    demands: Demands | None
    voted: tuple[str, ...]
    decided_for: str | None
    acts_for: str | None
    changes_requested: bool
    revises: UUID | None
    revision: int
    next_at: datetime | None
    undecidable_at: datetime | None
    holds: bool = False
    sees_held: bool = False
    allowance: UUID | None = None
    allowance_use: int | None = None

    @property
    def quorum(self) -> int:
        """How many people must approve."""
        return self.demands.quorum if self.demands else 1

    @property
    def plan_item(self) -> dict[str, Any] | None:
        """The item of the agent's plan to which the call belongs, as it was at the opening; None without one."""
        found = self.preview.get("plan") if isinstance(self.preview, dict) else None
        return found if isinstance(found, dict) else None

    @property
    def warnings(self) -> tuple[str, ...]:
        """The warnings of the tool's preview of the call."""
        shown = self.preview.get("shown") if isinstance(self.preview, dict) else None
        return tuple(approval_rows.texts(shown.get("warnings"))) if isinstance(shown, dict) else ()

    @property
    def changed_in_fork_by(self) -> str:
        """The person who gave the arguments in a fork, empty if the model did."""
        found = self.preview.get("changed_by") if isinstance(self.preview, dict) else None
        return found if isinstance(found, str) else ""

    @property
    def reviewer_may_write(self) -> bool:
        """Whether the rule lets people who may decide this request write to its run."""
        return writers.allowed(self.kind, self.demands)

    @property
    def next_step(self) -> NextStep | None:
        """The step that follows if no person decides; None without a deadline, and for a closed request."""
        if self.status != Approval.Status.PENDING:
            return None
        return escalation.next_step(self.demands, self.expires_at, timezone.now())

    @property
    def on_expiry(self) -> OnExpiry | None:
        """The consequence of the last deadline, None without one."""
        if self.expires_at is None:
            return None
        return self.demands.on_expiry if self.demands else OnExpiry.DENY

    @property
    def rule(self) -> str | None:
        """The name of the policy's rule for this request, None under the default policy."""
        return self.demands.rule if self.demands else None


def approvals(
    actor: Actor,
    *,
    kind: str = ANY,
    status: str | None = None,
    run: UUID | None = None,
    limit: int = LIMIT,
    cursor: str | None = None,
) -> Page[ApprovalView]:
    """List the requests of one kind, or of any, that this actor may read, oldest first.

    Raises InvalidInput naming `kind`, `status`, `limit` or `cursor`.
    """
    principal = principals.principal_of(actor)
    kinds = (ANY, *GateKind)
    if kind not in kinds:
        raise InvalidInput("kind", f"must be one of {', '.join(kinds)}")
    rows = Approval.objects.filter(request_rules.readable_requests(principal))
    if kind != ANY:
        rows = rows.filter(kind=kind)
    if status is not None:
        if status not in STATUSES:
            raise InvalidInput("status", f"must be one of {', '.join(STATUSES)}")
        rows = rows.filter(status=status)
    if run is not None:
        rows = rows.filter(run=run)
    return _page(rows, principal, limit=limit, cursor=cursor)


def approval(approval_id: UUID, *, actor: Actor) -> ApprovalView:
    """Return one approval. Raises NotFound if there is none or the actor may not read it."""
    return approval_for(approval_id, principals.principal_of(actor))


def approval_for(approval_id: UUID, principal: principals.Principal | None) -> ApprovalView:
    """Return one approval to a reader with these rights. Raises NotFound as `approval`."""
    return to_view(readable(approval_id, principal), principal)


def kind_of(approval_id: UUID) -> str:
    """Return the kind of a request, for a caller that checks the rights next. Raises NotFound."""
    kind = Approval.objects.filter(pk=approval_id).values_list("kind", flat=True).first()
    if kind is None:
        raise NotFound
    return kind


def several(ids: Collection[UUID], *, actor: Actor) -> tuple[ApprovalView, ...]:
    """Return those of these requests that the actor may read, in the order of `ids`, in one query."""
    principal = principals.principal_of(actor)
    rows = Approval.objects.filter(request_rules.readable_requests(principal), pk__in=ids)
    found = {approval.id: to_view(approval, principal) for approval in rows}
    return tuple(found[one] for one in ids if one in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """Other requests of a run that the page of one needs: those of its `turn`, in the order of the turn.

    `denied` has frame, call and gate of each denial of the tool in this run, also of this one, and if it is not in
    effect yet. Requests for changes are left out.
    """

    turn: tuple[ApprovalView, ...]
    denied: tuple[tuple[str, str, UUID], ...]


def beside(approval: ApprovalView, principal: principals.Principal | None) -> Beside:
    """Return the other requests of the run that matter to this one; of its turn those that this principal may read."""
    first = None  # of the ids of the turn's calls
    if not approval.tampered:  # else the call may be malformed
        first = f"c{turn_of(approval.call)}."
    wanted = Q(tool=approval.tool, status=Approval.Status.DENIED)
    if first is not None:
        wanted |= Q(frame=approval.frame, call__startswith=first)
    found = Approval.objects.filter(wanted, run=approval.run, kind__in=BEFORE_CALL)
    rows = list(found.order_by("created_at", "id"))
    return Beside(
        turn=tuple(
            to_view(row, principal)
            for row in rows
            if (first is not None and row.frame == approval.frame and row.call.startswith(first))
            and (row.id != approval.id and request_rules.reads(principal, row))
        ),
        denied=tuple(
            (row.frame, row.call, row.gate)
            for row in rows
            if (row.tool, row.status) == (approval.tool, Approval.Status.DENIED)
            and not statements.requests_changes(row)
        ),
    )


def open_in_doubt(approval: ApprovalView) -> UUID | None:
    """Return the pending request that asks for the outcome of the same call."""
    rows = Approval.objects.filter(
        run=approval.run,
        frame=approval.frame,
        call=approval.call,
        kind=GateKind.IN_DOUBT,
        status=Approval.Status.PENDING,
    )
    return rows.values_list("id", flat=True).first()


def asked_again(
    approval: ApprovalView, principal: principals.Principal | None
) -> ApprovalView | None:
    """Return the request that asked about the same call again after this one, None if this reader may read none."""
    rows = Approval.objects.filter(
        request_rules.readable_requests(principal),
        run=approval.run,
        frame=approval.frame,
        call=approval.call,
        kind=GateKind.APPROVAL,
        created_at__gt=approval.created_at,
    )
    row = rows.order_by("created_at").first()
    return None if row is None else to_view(row, principal)


def readable(approval_id: UUID, principal: principals.Principal | None) -> Approval:
    """Return the row if this principal may read it. Raises NotFound."""
    approval = Approval.objects.filter(
        request_rules.readable_requests(principal), pk=approval_id
    ).first()
    if approval is None:
        raise NotFound
    return approval


def _schema(stored: str) -> Any:
    try:
        return _value(schemas.text_of(stored))
    except NotConfirmed:
        return None


def to_view(approval: Approval, principal: principals.Principal | None) -> ApprovalView:
    """Verify a row and return it as plain data, with the reader's rights."""
    return verified(approval, principal, verification.fault(approval))


def verified(
    approval: Approval, principal: principals.Principal | None, tampered: str | None = None
) -> ApprovalView:
    """Return a row as plain data. The caller has verified it: `tampered` is the fault it found."""
    args, sees_held = (
        _value(approval.args),
        not tampered and request_rules.sees_held(principal, approval),
    )
    read_args = sealing.args_for_reviewers if sees_held else sealing.redacted_args
    return ApprovalView(
        id=approval.id,
        run=approval.run_id,
        gate=approval.gate,
        kind=approval.kind,
        frame=approval.frame,
        call=approval.call,
        tool=approval.tool,
        args=read_args(approval.tool, args),
        edited=None
        if approval.edited is None
        else read_args(approval.tool, _value(approval.edited)),
        edited_preview=None if approval.edited_preview is None else _value(approval.edited_preview),
        holds=bool(sealing.held_args(approval.tool, args)),
        sees_held=sees_held,
        schema=_schema(approval.schema),
        result_schema=None if approval.result_schema is None else _schema(approval.result_schema),
        preview=None if approval.preview is None else _value(approval.preview),
        path=tuple(approval_rows.texts(approval.path)),
        effect=approval.effect,
        risk=approval.risk,
        sentence=f"Tampered with: {approval.sentence}" if tampered else approval.sentence,
        status=approval.status,
        digest=approval.approval_digest,
        requester=approval.requester,
        origin=merge_people(
            [approval.requester],
            approval_rows.texts(approval.origin),
            approval_rows.texts(approval.excluded),
        ),
        created_at=approval.created_at,
        expires_at=approval.expires_at,
        not_before=approval.not_before,
        decided_by=approval.decided_by,
        decided_at=approval.decided_at,
        effective_at=approval.effective_at,
        reason=approval.reason,
        removed_at=approval.removed_at if verification.is_erased(approval) else None,
        confirm=confirmation.required(approval)
        if approval.status == Approval.Status.PENDING
        else None,
        denial=_denial(approval, principal, tampered),
        tampered=tampered,
        policy_version=approval.policy_version,
        demands=_demands(approval),
        voted=tuple(approval_rows.texts(approval.voted)),
        decided_for=approval.decided_for,
        acts_for=None if tampered else request_rules.decides_for(principal, approval),
        changes_requested=statements.requests_changes(approval),
        revises=approval.revises,
        revision=approval.revision,
        allowance=approval.allowance,
        allowance_use=approval.allowance_use,
        next_at=approval.next_at,
        undecidable_at=approval.undecidable_at,
    )


def _demands(approval: Approval) -> Demands | None:
    try:
        return demands_of(approval.rule)
    except (ValueError, KeyError, TypeError):  # the row was tampered with
        return None


def _denial(
    approval: Approval, principal: principals.Principal | None, tampered: str | None
) -> Forbidden | None:
    if tampered:
        return Forbidden("tampered", TamperedWith(tampered).detail)
    return request_rules.denial(principal, approval)


def _value(text: str) -> Any:
    """Parse JSON; return the text itself if it is not JSON, as in a row that was tampered with."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _page(
    rows: QuerySet[Approval],
    principal: principals.Principal | None,
    *,
    limit: int,
    cursor: str | None,
) -> Page[ApprovalView]:
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInput("limit", f"must be from 1 to {MAX_LIMIT}")
    if cursor is not None:
        rows = rows.filter(_after(cursor))
    found = list(rows.order_by("created_at", "id")[: limit + 1])
    items = tuple(to_view(approval, principal) for approval in found[:limit])
    last = cursors.encoded(items[-1].created_at, items[-1].id) if len(found) > limit else None
    return Page(items=items, next=last)


def _after(cursor: str) -> Q:
    _, at, last = cursors.decoded(cursor, parts=2)
    # The plain bound beside the pair lets Postgres walk the index from there.
    return Q(created_at__gte=at) & (Q(created_at__gt=at) | Q(id__gt=last))
