"""What an instance outside says of its request, and what became of the approval there."""

import json
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from approvals.models import Approval, ApprovalUse
from approvals.reads.approval_views import ApprovalView
from runtime.core.documents import external_call
from runtime.core.values.errors import NotJson
from runtime.models import Run

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
    if approval.tampered or approval.removed_at or not external_call.is_path(approval.path):
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
