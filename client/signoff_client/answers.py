"""The answers of the server, with those fields that the client uses.

`tests/client/test_contract.py` compares them with the server's OpenAPI document.
"""

from datetime import datetime
from typing import Any, TypeVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter

from signoff_client.errors import RunNotCompleted

T = TypeVar("T")


class Answer(BaseModel):
    """Ignores fields of a newer server."""

    model_config = ConfigDict(frozen=True)


class Gate(Answer):
    """The place where a run waits for a person; `approval` is the request about it."""

    id: UUID
    kind: str
    state: str
    tool: str
    approval: UUID | None


class Run(Answer):
    """A run. `reason` says why it failed or was cancelled."""

    id: UUID
    agent: str
    status: str
    status_text: str | None
    input: Any
    output: Any
    reason: str | None
    business_key: str | None
    requester: str
    created_at: datetime
    ended_at: datetime | None
    gates: list[Gate]

    def result(self, result_type: type[T]) -> T:
        """Return the output as a value of this type.

        Raise RunNotCompleted if there is none, pydantic's ValidationError if it has another type.
        """
        if self.status != "completed":
            raise RunNotCompleted(self.status, self.reason)
        return TypeAdapter(result_type).validate_python(self.output)


class RunPage(Answer):
    """A page of runs, newest first."""

    items: list[Run]
    next: str | None


class Approval(Answer):
    """A request. A decision names its `digest`, and repeats `confirm` to approve a call at high risk."""

    id: UUID
    run: UUID
    gate: UUID
    kind: str
    status: str
    tool: str
    args: Any
    sentence: str
    risk: str
    requester: str
    path: list[str]
    digest: str
    confirm: str | None
    created_at: datetime
    expires_at: datetime | None
    decided_by: str | None
    decided_at: datetime | None
    effective_at: datetime | None
    reason: str | None
    edited: Any
    allowance: UUID | None
    removed_at: datetime | None
    tampered: str | None


class ApprovalPage(Answer):
    """A page of requests, oldest first."""

    items: list[Approval]
    next: str | None


class JournalEntry(Answer):
    """The events that one commit added to the journal of a run."""

    position: int
    at: str | None
    events: list[Any]


class JournalPage(Answer):
    """A page of the journal, oldest first."""

    items: list[JournalEntry]
    next: str | None
