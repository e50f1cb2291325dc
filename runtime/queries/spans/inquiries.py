"""The inquiries of people about calls, as the journal tells them."""

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID


@dataclass(slots=True, kw_only=True)
class InquiryRecord:
    """One inquiry, changed only by the trace. It waits while it has neither an answer nor an error.

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
