"""Reads the requests of a run that matter to one of it: those of its turn and of its call, denials, and revisions."""

from dataclasses import dataclass
from uuid import UUID

from django.db.models import Q

from approvals.models import IN_DOUBT, OF_CALL, Approval
from approvals.reads.approval_views import ApprovalView, to_view
from approvals.rights import approval_rights as request_rules
from approvals.rights.principals import Principal
from runtime.core.values.ids import parse_turn
from runtime.core.values.verdicts import BEFORE_CALL


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherApprovals:
    """Other requests of a run that the page of one needs: those of its `turn`, in the order of the turn.

    `denied` has frame, call and gate of each denial of the tool in this run, also of this one, and if it is not in
    effect yet. Requests for changes are left out.
    """

    turn: tuple[ApprovalView, ...]
    denied: tuple[tuple[str, str, UUID], ...]


def read_others(approval: ApprovalView) -> OtherApprovals:
    """Return the other approvals of the run that matter to this one; of its turn those that its reader may read."""
    first = None  # of the ids of the turn's calls
    if not approval.tampered:  # else the call may be malformed
        first = f"c{parse_turn(approval.call)}."
    condition = Q(tool=approval.tool, status=Approval.Status.DENIED)
    if first is not None:
        condition |= Q(frame=approval.frame, call__startswith=first)
    selected = Approval.objects.filter(condition, run=approval.run, kind__in=BEFORE_CALL)
    rows = list(selected.order_by("created_at", "id"))
    return OtherApprovals(
        turn=tuple(
            to_view(row, approval.reader)
            for row in rows
            if (first is not None and row.frame == approval.frame and row.call.startswith(first))
            and (row.id != approval.id and request_rules.may_read_request(approval.reader, row))
        ),
        denied=tuple(
            (row.frame, row.call, row.gate)
            for row in rows
            if (row.tool, row.status) == (approval.tool, Approval.Status.DENIED)
            and (words := ApprovalView(stored=row, reader=None).words)
            and words.is_remembered
            and not words.asks_again
        ),
    )


def open_in_doubt(approval: ApprovalView) -> UUID | None:
    """Return the pending request that asks for the outcome of the same call."""
    rows = Approval.objects.filter(
        IN_DOUBT,
        run=approval.run,
        frame=approval.frame,
        call=approval.call,
        status=Approval.Status.PENDING,
    )
    return rows.values_list("id", flat=True).first()


def find_asked_again(approval: ApprovalView, principal: Principal | None) -> ApprovalView | None:
    """Return the request that asked about the same call again after this one, None if this reader may read none."""
    rows = Approval.objects.filter(
        request_rules.match_readable_requests(principal),
        OF_CALL,
        run=approval.run,
        frame=approval.frame,
        call=approval.call,
        created_at__gt=approval.created_at,
    )
    row = rows.order_by("created_at").first()
    return None if row is None else to_view(row, principal)


def read_previous_revision(approval: ApprovalView) -> ApprovalView | None:
    """Return the approval that this one revises; None if it revises none, or one that its reader may not read."""
    return None if approval.revises is None else _find_revision(approval, gate=approval.revises)


def read_next_revision(approval: ApprovalView) -> ApprovalView | None:
    """Return the approval that revises this one; None if there is none yet, or its reader may not read it."""
    if not approval.changes_requested:
        return None
    return _find_revision(approval, revises=approval.gate)


def _find_revision(approval: ApprovalView, **key: object) -> ApprovalView | None:
    readable = request_rules.match_readable_requests(approval.reader)
    revision = Approval.objects.filter(readable, run=approval.run, **key).first()
    return None if revision is None else to_view(revision, approval.reader)
