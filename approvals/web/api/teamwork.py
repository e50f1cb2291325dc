"""Serves what people do besides deciding in the API: claims, hand-overs, comments, inquiries, messages and absences.

The addresses and fields of inquiries keep the older word.
"""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from approvals.decisions import teamwork
from approvals.people import absences
from approvals.people import preferences as zones
from approvals.reads import approval_views, marks
from approvals.reads.marks import Mark, Remark
from approvals.rights import principals
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.signed import audit
from approvals.web.api.requests import parse_id
from runtime.core.values.limits import MAX_INQUIRY, MAX_MESSAGE, MAX_PERSON
from runtime.errors import ObjectStoreDown
from runtime.reads.transcript import list_inquiries, read_transcript, read_unreceived
from runtime.web.requests import Authenticated, Body
from runtime.web.schemas import with_fields_of

router = Router(tags=["approvals"])

Name = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_PERSON})]
Note = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": teamwork.MAX_NOTE})]
Text = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": teamwork.MAX_COMMENT})]
Inquiry = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_INQUIRY})]
Message = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_MESSAGE})]
Day = Annotated[Any, WithJsonSchema({"type": "string", "format": "date"})]
PlainText = Annotated[Any, WithJsonSchema({"type": "string"})]


@with_fields_of(Remark)
class CommentOut(Schema):
    """A comment. `is_signed` is false if it was changed in the database; then do not trust it."""


@with_fields_of(Mark, "claimed_by since until handed_to handed_by note")
class CompanyOut(Schema):
    """Who looks at a pending request, to whom it was handed last, and the comments on it, oldest first.

    `claimed_by` looks at it until `until`. Neither a claim nor a hand-over gives or takes a right. The agent receives
    none of this.
    """

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
    return _build_company(
        approval_views.read_approval(parse_id(approval), actor=request.auth).id, request
    )


@router.post("/approvals/{approval}/claim", response=CompanyOut)
def claim_approval(request: Authenticated, approval: str) -> CompanyOut:
    """Say for 10 minutes that you look at a request. Other people may still decide it."""
    teamwork.claim(approval_id=parse_id(approval), actor=request.auth)
    return _build_company(parse_id(approval), request)


@router.post("/approvals/{approval}/release", response=CompanyOut)
def release_approval(request: Authenticated, approval: str) -> CompanyOut:
    """End your claim, and give back a request that was handed to you."""
    teamwork.release(approval_id=parse_id(approval), actor=request.auth)
    return _build_company(parse_id(approval), request)


@router.post("/approvals/{approval}/handover", response=CompanyOut)
def hand_over_approval(request: Authenticated, approval: str, body: HandoverIn) -> CompanyOut:
    """Hand a request to another person who may decide it. Your claim moves to them."""
    teamwork.hand_over(
        approval_id=parse_id(approval), to=body.to, note=body.note, actor=request.auth
    )
    return _build_company(parse_id(approval), request)


@router.post("/approvals/{approval}/comments", response=CompanyOut)
def comment_on_approval(request: Authenticated, approval: str, body: CommentIn) -> CompanyOut:
    """Comment on a request that you may read. The token needs the scope approvals:decide."""
    teamwork.add_comment(approval_id=parse_id(approval), text=body.text, actor=request.auth)
    return _build_company(parse_id(approval), request)


class QuestionOut(Schema):
    """An inquiry about the call of a request.

    `answer` is text that the agent's model wrote, `error` says why there is none. `ended` means that the request was
    decided or closed first. `asked_at` is null until a worker has received the inquiry.
    """

    id: UUID
    person: str
    question: str
    state: Literal["waiting", "answered", "failed", "ended"]
    asked_at: datetime | None
    answer: str | None
    error: str | None


class QuestionIn(Body):
    """An inquiry to the agent."""

    question: Inquiry = None


class ReviewerMessageOut(Schema):
    """A message that was sent to a run, and its author."""

    run: UUID
    by: str


class ReviewerMessageIn(Body):
    """A message of a reviewer to the run's first agent."""

    text: Message = None


@router.get("/approvals/{approval}/questions", response=list[QuestionOut])
def list_questions(request: Authenticated, approval: str) -> list[QuestionOut]:
    """List the inquiries about the call of a request."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    return _list_inquiries(approval_views.read_approval(parse_id(approval), actor=request.auth))


@router.post("/approvals/{approval}/questions", response=list[QuestionOut])
def ask_agent(request: Authenticated, approval: str, body: QuestionIn) -> list[QuestionOut]:
    """Ask the agent about the call of a pending request, which stays open.

    The agent's model answers outside of its conversation and without tools. Read the answer with the list of inquiries.
    """
    return _list_inquiries(
        teamwork.inquire(approval_id=parse_id(approval), question=body.question, actor=request.auth)
    )


@router.post("/approvals/{approval}/messages", response={202: ReviewerMessageOut})
def write_as_reviewer(
    request: Authenticated, approval: str, body: ReviewerMessageIn
) -> Status[ReviewerMessageOut]:
    """Write to the run of a pending request, if the policy's rule lets you.

    The run's first agent gets the message with its next model call. You may still decide the requests of this rule that
    are open now, and none that opens in this run afterwards.
    """
    written = teamwork.send_message(
        approval_id=parse_id(approval), text=body.text, actor=request.auth
    )
    return Status(202, ReviewerMessageOut(run=written.run, by=request.auth.person))


@with_fields_of(absences.Away, "person deputy starts ends has_begun")
class AwayOut(Schema):
    """An absence that is not over: `deputy` decides in the place of `person` from `starts` until `ends`."""


class AwayIn(Body):
    """Your first and last day away in `zone`, at most 60, and your deputy, who must be able to decide already."""

    deputy: PlainText = None
    starts: Day = None
    ends: Day = None
    zone: PlainText = "UTC"


@router.get("/absences", response=list[AwayOut])
def list_absences(request: Authenticated) -> list[absences.Away]:
    """List your absences and those of people whose deputy you are; admins get all."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    principal = principals.find_principal(request.auth)
    if principal is not None and principal.has(Scope.ADMIN):
        return list(absences.list_away())
    absence, standing_in = absences.read_absences_of(request.auth.person)
    return [away for away in (absence, *standing_in) if away is not None]


@router.post("/absences", response=AwayOut)
def announce_absence(request: Authenticated, body: AwayIn) -> absences.Away:
    """Name your deputy for some days. This replaces your earlier absence."""
    zone = zones.find_zone(str(body.zone), "zone")
    return absences.announce(
        deputy=body.deputy,
        starts=zones.parse_day(body.starts, "starts", zone),
        ends=zones.parse_day(body.ends, "ends", zone, after=1),
        actor=request.auth,
    )


@router.post("/absences/{person}/end", response=list[AwayOut])
def end_absence(request: Authenticated, person: str) -> list[absences.Away]:
    """End an absence that you may list."""
    absences.end_absence(person, actor=request.auth)
    return list_absences(request)


def _build_company(approval: UUID, request: Authenticated) -> CompanyOut:
    view = marks.read_teamwork(approval, request.auth.person)
    comments = [CommentOut.from_orm(remark) for remark in view.comments]
    return CompanyOut(**{**asdict(view.mark), "comments": comments})


def _list_inquiries(approval: approval_views.ApprovalView) -> list[QuestionOut]:
    try:
        transcript = read_transcript(approval.run)
    except ObjectStoreDown:
        if audit.count_acts(approval.run, audit.name_subject(approval.id), act=teamwork.ASKED):
            raise  # the archive has the inquiries
        return []
    sent = read_unreceived(approval.run)
    waiting: Literal["waiting", "ended"] = "waiting" if approval.status == "pending" else "ended"
    return [
        QuestionOut(
            id=inquiry.id,
            person=inquiry.by,
            question=inquiry.text,
            state=waiting if inquiry.waits else "failed" if inquiry.error else "answered",
            asked_at=inquiry.at,
            answer=inquiry.answer or None,
            error=inquiry.error or None,
        )
        for inquiry in list_inquiries(transcript, sent, approval.gate, unsealed=approval.sees_held)
    ]
