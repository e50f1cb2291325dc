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
from runtime.core.decisions import Verdict
from runtime.ports import Actor

router = Router(tags=["approvals"])


class Authenticated(HttpRequest):
    """A request that the API's authentication has let in."""

    auth: Actor


class ApprovalOut(Schema):
    """One approval. `digest` is what a decision must name; `args` are complete."""

    id: UUID
    run: UUID
    gate: UUID
    frame: str
    call: str
    tool: str
    args: Any
    path: list[str]
    risk: str
    sentence: str
    status: str
    digest: str
    requester: str
    created_at: datetime
    expires_at: datetime | None
    decided_by: str | None
    decided_at: datetime | None
    reason: str | None


class ApprovalPage(Schema):
    """A piece of the list, oldest first; `next` is the cursor of the piece after it."""

    items: list[ApprovalOut]
    next: str | None


class DecisionIn(Schema):
    """A verdict on what was seen. Any value gets in: who may not read hears 404, not 422."""

    verdict: Annotated[Any, WithJsonSchema({"enum": [str(verdict) for verdict in Verdict]})] = None
    digest: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    reason: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": actions.MAX_REASON})] = ""


@router.get("/approvals", response=ApprovalPage)
def list_approvals(
    request: Authenticated,
    status: str | None = None,
    run: UUID | None = None,
    limit: int = queries.LIMIT,
    cursor: str | None = None,
) -> queries.Page:
    """The approvals you may read, oldest first."""
    Access().require(request.auth, Scope.APPROVALS_READ)
    return queries.approvals(request.auth, status=status, run=run, limit=limit, cursor=cursor)


@router.get("/approvals/{approval}", response=ApprovalOut)
def read_approval(request: Authenticated, approval: str) -> queries.Approval:
    """One approval."""
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


def _id(text: str) -> UUID:
    try:
        return UUID(text)
    except ValueError as exc:
        raise NotFound from exc
