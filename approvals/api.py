"""The approvals of the API, mounted where errors are answered and callers known."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import HttpRequest
from ninja import Router, Schema
from pydantic import WithJsonSchema

from approvals import actions, queries
from approvals.errors import NotFound
from approvals.permissions import Access, Scope
from runtime.core.decisions import VERDICTS, GateKind
from runtime.ports import Actor

router = Router(tags=["approvals"])


class Authenticated(HttpRequest):
    """A request that the API's authentication has let in."""

    auth: Actor


class ApprovalOut(Schema):
    """One request: `kind` is `approval`, or `in_doubt` for a call whose outcome was lost.

    `digest` is what a decision must name; `args` are complete. A call in doubt cannot be run again
    before `not_before`, and a reported result must fit `result_schema`.
    """

    id: UUID
    run: UUID
    gate: UUID
    kind: str
    frame: str
    call: str
    tool: str
    args: Any
    result_schema: Any
    path: list[str]
    risk: str
    sentence: str
    status: str
    digest: str
    requester: str
    created_at: datetime
    expires_at: datetime | None
    not_before: datetime | None
    decided_by: str | None
    decided_at: datetime | None
    reason: str | None


class ApprovalPage(Schema):
    """A piece of the list, oldest first; `next` is the cursor of the piece after it."""

    items: list[ApprovalOut]
    next: str | None


Reason = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": actions.MAX_REASON})]


class DecisionIn(Schema):
    """A verdict on what was seen. Any value gets in: who may not read hears 404, not 422."""

    verdict: Annotated[Any, WithJsonSchema({"enum": [*VERDICTS[GateKind.APPROVAL]]})] = None
    digest: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    reason: Reason = ""


class SettlementIn(Schema):
    """What became of a call in doubt. `result` is what it returned, given exactly if it happened."""

    outcome: Annotated[Any, WithJsonSchema({"enum": [*VERDICTS[GateKind.IN_DOUBT]]})] = None
    result: Any = None
    reason: Reason = ""


@router.get("/approvals", response=ApprovalPage)
def list_approvals(
    request: Authenticated,
    kind: str = GateKind.APPROVAL,
    status: str | None = None,
    run: UUID | None = None,
    limit: int = queries.LIMIT,
    cursor: str | None = None,
) -> queries.Page:
    """The approvals you may read, oldest first; with `kind=in_doubt` the calls in doubt."""
    Access().require(request.auth, Scope.APPROVALS_READ)
    return queries.approvals(
        request.auth, kind=kind, status=status, run=run, limit=limit, cursor=cursor
    )


@router.get("/approvals/{approval}", response=ApprovalOut)
def read_approval(request: Authenticated, approval: str) -> queries.Approval:
    """One request, of either kind."""
    Access().require(request.auth, Scope.APPROVALS_READ)
    return queries.approval(_id(approval), actor=request.auth)


@router.post("/approvals/{approval}/decision", response=ApprovalOut)
def decide(request: Authenticated, approval: str, body: DecisionIn) -> queries.Approval:
    """Approve or deny, for good. A denial needs a reason, which the agent's model hears."""
    return actions.decide(
        request=_id(approval),
        verdict=body.verdict,
        digest=body.digest,
        reason=body.reason,
        actor=request.auth,
    )


@router.post("/runs/{run}/gates/{gate}/settle", response=ApprovalOut)
def settle(request: Authenticated, run: str, gate: str, body: SettlementIn) -> queries.Approval:
    """Say what became of a call in doubt, for good. Giving up needs a reason, which the model hears."""
    return actions.settle(
        run=_id(run),
        gate=_id(gate),
        outcome=body.outcome,
        result=body.result if "result" in body.model_fields_set else actions.ABSENT,
        reason=body.reason,
        actor=request.auth,
    )


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise NotFound from exc
