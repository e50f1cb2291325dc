"""Makes the events of inquiries: a worker receives them, or the budget does not suffice for an answer."""

from runtime.core.continuation import Continuation, Inquiry, Phase
from runtime.core.events import QuestionAsked, QuestionFailed
from runtime.store.tables.signals import InquirySignal


def receive_question(now: Continuation, signal: InquirySignal) -> QuestionAsked | None:
    """Return the event that receives an inquiry, None if its gate is no longer open."""
    for pending in now.pending:
        if pending.gate == signal.gate and pending.call and now.phase is Phase.STARTED:
            return QuestionAsked(
                frame=pending.frame,
                call=pending.call,
                gate=pending.gate,
                question=signal.inquiry,
                by=signal.by,
                text=signal.text,
            )
    return None


def without_budget(inquiry: Inquiry) -> QuestionFailed:
    """Return the event that ends an inquiry which the budget does not let the model answer."""
    return QuestionFailed(
        frame=inquiry.frame,
        call=inquiry.call,
        question=inquiry.id,
        error="the budget does not suffice for an answer",
    )
