"""API operations on archived runs and legal holds; for admins."""

from uuid import UUID

from ninja import Router

from runtime.control import interventions, transfer
from runtime.ports import wiring
from runtime.reads.runs import RunDetail
from runtime.web.api.runs import RunOut
from runtime.web.requests import Authenticated, Body, Reason

router = Router(tags=["archive"])


class HoldIn(Body):
    """The reason. Any value is accepted, so that a caller who may not read the run gets 404, not 422."""

    reason: Reason = ""


@router.post("/runs/{uuid:run}/restore", response=RunOut)
def restore_run(request: Authenticated, run: UUID, body: HoldIn) -> RunDetail:
    """Restore an archived run, with a reason; for admins."""
    wiring.access().require(request.auth, "runs:read")
    return transfer.restore(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/hold", response=RunOut)
def hold_run(request: Authenticated, run: UUID, body: HoldIn) -> RunDetail:
    """Put a run under a legal hold, with a reason; for admins."""
    wiring.access().require(request.auth, "runs:read")
    return interventions.hold(run=run, reason=body.reason, actor=request.auth)


@router.post("/runs/{uuid:run}/lift-hold", response=RunOut)
def lift_hold(request: Authenticated, run: UUID, body: HoldIn) -> RunDetail:
    """Lift the legal hold of a run, with a reason; for admins."""
    wiring.access().require(request.auth, "runs:read")
    return interventions.lift_hold(run=run, reason=body.reason, actor=request.auth)
