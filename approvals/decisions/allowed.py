"""Decides the request of a call that an allowance passes, and writes its use in the same step."""

import json
from collections.abc import Sequence

from approvals.models import Approval
from runtime.ports.approvals import Allowed, StatementPart

CHANNEL = "allowance"
_BEFORE_USES = 2  # acts: the proposal and the confirmation

_USED = """
    INSERT INTO approvals_allowanceact (allowance, seq, act, at, run, frame, call, approval)
    SELECT u.allowance, u.seq, 'used', u.at, run.id, u.frame, u.call, u.approval
    FROM run, json_to_recordset(%(uses)s::json) AS u (
        allowance uuid, seq int, at timestamptz, frame text, call text, approval uuid)
"""


def decide(approval: Approval, allowed: Allowed) -> tuple[str, dict[str, str | None]]:
    """Approve the request by the allowance, and return the act with its detail for the audit."""
    use = allowed.use
    approval.status = Approval.Status.APPROVED
    approval.decided_by, approval.decided_at = use.by[-1], approval.created_at
    approval.reason, approval.channel = "", CHANNEL
    approval.statement, approval.signature, approval.key_id = allowed.proof
    detail: dict[str, str | None] = {
        "allowance": str(use.id),
        "use": f"{use.number} of {use.of}",
        "made by": ", ".join(use.by),
    }
    return str(approval.status), detail


def used(approvals: Sequence[Approval]) -> tuple[StatementPart, ...]:
    """Return the part of a step that adds the uses, none without any.

    If another step took the same use, or a person revoked the allowance, the step is not written.
    """
    rows = [
        {
            "allowance": approval.allowance,
            "seq": _BEFORE_USES + approval.allowance_use,
            "at": approval.created_at,
            "frame": approval.frame,
            "call": approval.call,
            "approval": approval.id,
        }
        for approval in approvals
        if approval.allowance is not None and approval.allowance_use is not None
    ]
    if not rows:
        return ()
    parameters: dict[str, object] = {"uses": json.dumps(rows, default=str)}
    return (
        StatementPart(name="used", sql=_USED, parameters=parameters, overtaken="allowance_order"),
    )
