"""Serves the inquiries of people about a call, and their messages to its run, in the API.

The addresses and fields of inquiries keep the older word.
"""

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from approvals.decisions.teamwork import ASKED, inquire, send_message
from approvals.reads import approval_views
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.signed import audit
from approvals.web.api.ids import id_of
from runtime.core.values.limits import MAX_INQUIRY, MAX_MESSAGE
from runtime.errors import ObjectStoreDown
from runtime.reads.inquiries import list_for_gate, unreceived
from runtime.reads.transcript import read_transcript
from runtime.web.requests import Authenticated, Body

router = Router(tags=["approvals"])

Text = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_INQUIRY})]

Message = Annotated[Any, WithJsonSchema({"type": "string", "maxLength": MAX_MESSAGE})]


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

    question: Text = None


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
    return _inquiries(approval_views.approval(id_of(approval), actor=request.auth))


@router.post("/approvals/{approval}/questions", response=list[QuestionOut])
def ask_agent(request: Authenticated, approval: str, body: QuestionIn) -> list[QuestionOut]:
    """Ask the agent about the call of a pending request, which stays open.

    The agent's model answers outside of its conversation and without tools. Read the answer with the list of inquiries.
    """
    return _inquiries(
        inquire(approval_id=id_of(approval), question=body.question, actor=request.auth)
    )


@router.post("/approvals/{approval}/messages", response={202: ReviewerMessageOut})
def write_as_reviewer(
    request: Authenticated, approval: str, body: ReviewerMessageIn
) -> Status[ReviewerMessageOut]:
    """Write to the run of a pending request, if the policy's rule lets you.

    The run's first agent gets the message with its next model call. You may still decide the requests of this rule that
    are open now, and none that opens in this run afterwards.
    """
    written = send_message(approval_id=id_of(approval), text=body.text, actor=request.auth)
    return Status(202, ReviewerMessageOut(run=written.run, by=request.auth.person))


def _inquiries(approval: approval_views.ApprovalView) -> list[QuestionOut]:
    try:
        transcript = read_transcript(approval.run)
    except ObjectStoreDown:
        if audit.number(approval.run, f"request {approval.id}", act=ASKED):
            raise  # the archive has the inquiries
        return []
    sent = unreceived(approval.run)
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
        for inquiry in list_for_gate(transcript, sent, approval.gate, unsealed=approval.sees_held)
    ]
