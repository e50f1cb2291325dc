"""Asks the agent about the call of a request. The request stays open, and no value of it changes."""

from uuid import UUID

from django.db import transaction

from approvals.decisions import checks, commit
from approvals.errors import Expired, TooManyInquiries
from approvals.reads import approval_views
from approvals.rights import approvals
from approvals.signed import audit
from runtime.control import messages
from runtime.control.access import validate_text
from runtime.control.messages import send_as_reviewer
from runtime.core.documents.blobs import digest_of
from runtime.core.values.limits import MAX_INQUIRIES, MAX_INQUIRY
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

ASKED = "asked"


def inquire(*, approval_id: UUID, question: object, actor: Actor) -> approval_views.ApprovalView:
    """Send an inquiry of a person who may decide the request to its agent, which answers without tools.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; InvalidInput
    naming `question`; TooManyInquiries; RunEnded. Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor))
        approval = loaded.approval
        if commit.is_expired(approval, loaded.at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not approval.is_of_call:
            raise InvalidInput("question", "is only for a call that waits for an approval")
        text = validate_text("question", question, MAX_INQUIRY, required="is required")
        if audit.number(approval.run_id, f"request {approval.id}", act=ASKED) >= MAX_INQUIRIES:
            raise TooManyInquiries
        sent = messages.ask_inquiry(
            run=approval.run_id, gate=approval.gate, by=actor.person, text=text
        )
        audit.append(
            run=approval.run_id,
            actor=actor,
            act=ASKED,
            subject=f"request {approval.id}",
            detail={"question": str(sent), "text": digest_of(text)},
        )
    return approval_views.ApprovalView(stored=approval, reader=loaded.principal)


def send_message(*, approval_id: UUID, text: object, actor: Actor) -> approval_views.ApprovalView:
    """Send the message. The writer may still decide this request, and none that opens later in its run.

    Raises, in this order: NotFound; Forbidden; AlreadyDecided, AlreadyCancelled or Expired; TamperedWith; Forbidden
    (`not_eligible`) if the rule does not let reviewers write; InvalidInput naming `text`; RunEnded; TooManyUndelivered.
    Nothing is written when it raises.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        loaded = checks.open_request(commit.load(approval_id, actor))
        approval = loaded.approval
        if commit.is_expired(approval, loaded.at) and approval.expires_at is not None:
            raise Expired(approval.expires_at)
        if not approvals.may_write(approval):
            raise Forbidden(
                "not_eligible",
                "The policy does not let people who decide this request write to its run.",
            )
        send_as_reviewer(run=approval.run_id, text=text, actor=actor)
    return approval_views.ApprovalView(stored=approval, reader=loaded.principal)
