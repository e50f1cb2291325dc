"""The runs of the API, mounted where errors are answered and callers known."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from django.http import Http404, HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import AfterValidator, ConfigDict, StringConstraints, WithJsonSchema

from runtime import actions, ports, queries
from runtime.ports import Actor, Forbidden

router = Router(tags=["runs"])


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("must not contain a NUL character")
    return text


Text = Annotated[str, StringConstraints(min_length=1, max_length=200), AfterValidator(_storable)]
Limit = Annotated[int, Query(ge=1, le=200)]


class Authenticated(HttpRequest):
    """A request that the API's authentication has let in."""

    auth: Actor


class RunIn(Schema):
    """What to run. The same business key, from the same person for the same agent, is the same run."""

    model_config = ConfigDict(extra="forbid")

    agent: Text
    input: Any
    business_key: Text | None = None


class CancelIn(Schema):
    """Why. Any value gets in: who may not read the run hears 404, not 422."""

    reason: Annotated[Any, WithJsonSchema({"type": "string", "maxLength": actions.MAX_REASON})] = ""


class GateOut(Schema):
    """A gate whose decision the run has not taken up; `approval` is the id of its approval request."""

    id: UUID
    kind: str
    state: str
    frame: str
    call: str
    tool: str
    path: list[str]
    opened_at: datetime
    approval: UUID | None


class RunOut(Schema):
    """A run. `reason` says why it failed, or was quarantined or cancelled."""

    id: UUID
    agent: str
    status: str
    input: Any
    output: Any
    reason: str | None
    business_key: str | None
    requester: str
    created_at: datetime
    ended_at: datetime | None
    gates: list[GateOut]


class RunPage(Schema):
    """A piece of the list, newest first; `next` is the cursor of the piece after it."""

    items: list[RunOut]
    next: str | None


class JournalItemOut(Schema):
    """One entry: what happened in one commit."""

    position: int
    at: str | None
    events: list[Any]


class JournalPage(Schema):
    """A piece of the journal, oldest first."""

    items: list[JournalItemOut]
    next: str | None


@router.post("/runs", response={201: RunOut, 200: RunOut})
def start_run(request: Authenticated, body: RunIn) -> Status[queries.RunDetail]:
    """Start a run: 201, or 200 with the run that this business key already started."""
    started = actions.start(
        agent=body.agent, input=body.input, business_key=body.business_key, actor=request.auth
    )
    return Status(201 if started.created else 200, actions.readable(started.run, request.auth))


@router.get("/runs", response=RunPage)
def list_runs(
    request: Authenticated,
    business_key: Text | None = None,
    limit: Limit = 50,
    cursor: UUID | None = None,
) -> queries.Page[queries.RunDetail]:
    """The runs you may read, newest first."""
    access = ports.access()
    access.require(request.auth, "runs:read")
    return queries.run_details(
        access.readable_runs(request.auth), business_key=business_key, limit=limit, cursor=cursor
    )


@router.get("/runs/{uuid:run}", response=RunOut)
def read_run(request: Authenticated, run: UUID) -> queries.RunDetail:
    """One run."""
    ports.access().require(request.auth, "runs:read")
    return actions.readable(run, request.auth)


@router.post("/runs/{uuid:run}/cancel", response=RunOut)
def cancel_run(request: Authenticated, run: UUID, body: CancelIn) -> queries.RunDetail:
    """End a run, with a reason: what waits for people is closed, what is under way is waited for."""
    ports.access().require(request.auth, "runs:cancel")
    return actions.cancel(run=run, reason=body.reason, actor=request.auth)


@router.get("/runs/{uuid:run}/journal", response=JournalPage)
def read_journal(
    request: Authenticated, run: UUID, limit: Limit = 50, cursor: int | None = None
) -> queries.Page[queries.JournalItem]:
    """What happened, entry by entry, in order."""
    ports.access().require(request.auth, "runs:read")
    actions.readable(run, request.auth)
    return queries.journal_page(run, limit=limit, cursor=cursor)


@router.get("/runs/{uuid:run}/continuation")
def read_continuation(request: Authenticated, run: UUID) -> Any:
    """Everything a run that waits needs to go on, without secrets; for admins."""
    access = ports.access()
    access.require(request.auth, "runs:read")
    actions.readable(run, request.auth)
    if not access.reads_continuations(request.auth):
        raise Forbidden("not_eligible", "Continuations are for admins.")
    document = queries.continuation(run)
    if document is None:
        raise Http404("This run has no continuation: it does not wait.")
    return document
