"""The inquiries of people about calls, as the journal tells them."""

from collections.abc import MutableMapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from runtime.core import events as e
from runtime.queries.redaction import redact


@dataclass(slots=True, kw_only=True)
class InquiryRecord:
    """One inquiry, changed only by the fold. It waits while it has neither an answer nor an error.

    `at` is None until a worker has received it; `answered_at` is also the time of a failure. `sealed` is the answer as
    stored: an agent that holds its answers has it sealed.
    """

    id: UUID
    gate: UUID
    by: str
    text: str
    at: datetime | None = None
    answer: str = ""
    sealed: str = ""
    error: str = ""
    answered_at: datetime | None = None

    @property
    def waits(self) -> bool:
        """Whether the agent has not answered yet."""
        return not self.answer and not self.error


def follow(
    inquiries: MutableMapping[UUID, InquiryRecord],
    event: e.QuestionAsked | e.QuestionAnswered | e.QuestionFailed,
    at: datetime,
) -> None:
    """Add an inquiry, or end it."""
    if isinstance(event, e.QuestionAsked):
        inquiries[event.question] = InquiryRecord(
            id=event.question, gate=event.gate, by=event.by, text=redact(event.text), at=at
        )
        return
    found = inquiries.get(event.question)
    if found is None:  # the entry with the inquiry cannot be read
        return
    found.answered_at = at
    if isinstance(event, e.QuestionAnswered):
        found.answer, found.sealed = redact(event.text), event.text
    else:
        found.error = redact(event.error)
