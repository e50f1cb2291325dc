"""Makes the events of inquiries, the questions that people ask an agent about a call which waits at a gate."""

from runtime.core.continuation import Continuation, Phase, Question
from runtime.core.events import QuestionAsked, QuestionFailed
from runtime.store.tables.signals import QuestionSignal


def asked(now: Continuation, signal: QuestionSignal) -> QuestionAsked | None:
    """Return the event that receives an inquiry, None if its gate is no longer open."""
    for pending in now.pending:
        if pending.gate == signal.gate and pending.call and now.phase is Phase.STARTED:
            return QuestionAsked(
                frame=pending.frame,
                call=pending.call,
                gate=pending.gate,
                question=signal.question,
                by=signal.by,
                text=signal.text,
            )
    return None


def without_budget(asked: Question) -> QuestionFailed:
    """Return the event that ends an inquiry which the budget does not let the model answer."""
    return QuestionFailed(
        frame=asked.frame,
        call=asked.call,
        question=asked.id,
        error="the budget does not suffice for an answer",
    )
