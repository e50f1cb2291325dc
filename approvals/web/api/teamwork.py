"""Serves claims, hand-overs and comments of requests in the API."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema
from pydantic import WithJsonSchema

from approvals.decisions import teamwork
from approvals.reads import approval_views, marks
from approvals.reads.marks import Remark
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.web.api.ids import id_of
from runtime.core.values.limits import MAX_PERSON
from runtime.web.requests import Authenticated, Body
from runtime.web.schemas import fields_of

router = Router(tags=["approvals"])

Name = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_PERSON})]
Note = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": teamwork.MAX_NOTE})]
Text = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": teamwork.MAX_COMMENT})]


@fields_of(Remark)
class CommentOut(Schema):
    """A comment. `is_signed` is false if it was changed in the database; then do not trust it."""


class CompanyOut(Schema):
    """Who looks at a pending request, to whom it was handed last, and the comments on it, oldest first.

    `claimed_by` looks at it until `until`. Neither a claim nor a hand-over gives or takes a right. The agent receives
    none of this.
    """

    claimed_by: str | None
    since: datetime | None
    until: datetime | None
    handed_to: str | None
    handed_by: str | None
    note: str | None
    comments: list[CommentOut]


class HandoverIn(Body):
    """The person who receives the request, who must be able to decide it, and a note for them."""

    to: Name = None
    note: Note = ""


class CommentIn(Body):
    """A comment for people."""

    text: Text = None


@router.get("/approvals/{approval}/company", response=CompanyOut)
def read_company(request: Authenticated, approval: str) -> CompanyOut:
    """Read who looks at a request, and its comments."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    return _of(approval_views.approval(id_of(approval), actor=request.auth).id, request)


@router.post("/approvals/{approval}/claim", response=CompanyOut)
def claim_approval(request: Authenticated, approval: str) -> CompanyOut:
    """Say for 10 minutes that you look at a request. Other people may still decide it."""
    teamwork.claim(approval_id=id_of(approval), actor=request.auth)
    return _of(id_of(approval), request)


@router.post("/approvals/{approval}/release", response=CompanyOut)
def release_approval(request: Authenticated, approval: str) -> CompanyOut:
    """End your claim, and give back a request that was handed to you."""
    teamwork.release(approval_id=id_of(approval), actor=request.auth)
    return _of(id_of(approval), request)


@router.post("/approvals/{approval}/handover", response=CompanyOut)
def hand_over_approval(request: Authenticated, approval: str, body: HandoverIn) -> CompanyOut:
    """Hand a request to another person who may decide it. Your claim moves to them."""
    teamwork.hand_over(approval_id=id_of(approval), to=body.to, note=body.note, actor=request.auth)
    return _of(id_of(approval), request)


@router.post("/approvals/{approval}/comments", response=CompanyOut)
def comment_on_approval(request: Authenticated, approval: str, body: CommentIn) -> CompanyOut:
    """Comment on a request that you may read. The token needs the scope approvals:decide."""
    teamwork.add_comment(approval_id=id_of(approval), text=body.text, actor=request.auth)
    return _of(id_of(approval), request)


def _of(approval: UUID, request: Authenticated) -> CompanyOut:
    teamwork_view = marks.of(approval, request.auth.person)
    mark = teamwork_view.mark
    return CompanyOut(
        claimed_by=mark.claimed_by,
        since=mark.since,
        until=mark.until,
        handed_to=mark.handed_to,
        handed_by=mark.handed_by,
        note=mark.note,
        comments=[CommentOut.from_orm(remark) for remark in teamwork_view.comments],
    )
