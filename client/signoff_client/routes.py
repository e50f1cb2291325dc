"""All that the client uses of the API: the routes with their parameters, and the fields of bodies and answers.

A request can be made from this table alone, and a test compares the table with the OpenAPI document.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar
from urllib.parse import quote
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter

from signoff_client.errors import RunNotCompleted

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Route(Generic[T]):
    """An operation. A `repeatable` one is sent again if its answer is lost, because the second time changes nothing.

    The answer is read as JSON, or left as it is if it is to be `bytes`.
    """

    method: str
    path: str
    answer: type[T]
    query: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    repeatable: bool = True

    def path_of(self, id: Any) -> str:
        """Return the path below the address of the API, with this id."""
        return re.sub(r"\{\w+\}", lambda _: quote(str(id), safe=""), self.path)

    def arguments(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of the HTTP request; a parameter that is None is left out, a field is null."""
        unknown = values.keys() - {*self.query, *self.body}
        assert not unknown, f"{self.path} has no {unknown}"
        params = {name: str(values[name]) for name in self.query if values.get(name) is not None}
        body = {name: values[name] for name in self.body if name in values}
        content = body if self.method == "POST" else None
        return {"method": self.method, "params": params, "json": content}


class Answer(BaseModel):
    """Ignores fields of a newer server."""

    model_config = ConfigDict(frozen=True)


class Page(Answer, Generic[T]):
    """A page of a list: runs begin with the newest, requests and entries with the oldest."""

    items: list[T]
    next: str | None


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


class JournalEntry(Answer):
    """The events that one commit added to the journal of a run."""

    position: int
    at: str | None
    events: list[Any]


# The same business key returns the same run, and an exported run returns its file again.
_START = ("agent", "input", "business_key", "thread", "budget")
_DECISION = ("verdict", "digest", "reason", "confirm", "result", "arguments", "grant")
_FILTERS = ("kind", "status", "run", "limit", "cursor")
START_RUN = Route("POST", "/runs", Run, body=_START)
LIST_RUNS = Route("GET", "/runs", Page[Run], ("business_key", "limit", "cursor"))
READ_RUN = Route("GET", "/runs/{run}", Run, ("wait", "until"))
READ_JOURNAL = Route("GET", "/runs/{run}/journal", Page[JournalEntry], ("limit", "cursor"))
EXPORT_RUN = Route("POST", "/runs/{run}/export", bytes)
LIST_APPROVALS = Route("GET", "/approvals", Page[Approval], _FILTERS)
READ_APPROVAL = Route("GET", "/approvals/{approval}", Approval)
DECIDE = Route("POST", "/approvals/{approval}/decision", Approval, body=_DECISION, repeatable=False)
