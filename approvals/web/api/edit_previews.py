"""Serves previews of edited arguments in the API: what a call would do with the arguments of a reviewer."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from ninja import Router, Schema, Status
from pydantic import WithJsonSchema

from approvals.decisions.decide import ask_preview, find_preview
from approvals.errors import NotFound, TamperedWith
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.web.api.ids import id_of
from runtime.core.values.enums import CallPreview
from runtime.errors import InvalidInput, KeyMissing, Tampered
from runtime.ports.access import Actor
from runtime.web.requests import Authenticated, Body

router = Router(tags=["approvals"])


class EditPreviewIn(Body):
    """All the arguments of an edit, as in a decision, on the request with this `digest`."""

    digest: Annotated[Any, WithJsonSchema({"type": "string"})] = None
    arguments: Annotated[Any, WithJsonSchema({"type": "object"})] = None


class EditPreviewOut(Schema):
    """A preview of an edit. `state` is `queued`, `running`, `done` or `failed`; `problem` says why it failed.

    `shown` is what the call would do, null without it: then `missing` says why, and the edit can still be approved, or
    the tool `refused` the arguments, and it cannot.
    """

    id: UUID
    at: datetime
    state: str
    problem: str
    shown: Any
    missing: str
    refused: str


@router.post("/approvals/{approval}/previews", response={202: EditPreviewOut})
def preview_edit(
    request: Authenticated, approval: str, body: EditPreviewIn
) -> Status[EditPreviewOut]:
    """Have a worker preview a pending call with your arguments. It takes the place of your last preview of this call.

    Nothing is decided. Read the result, then name the id in a decision `edit`. Only for a request whose `preview` has
    `shown` or `missing`: the tool of any other makes none.
    """
    preview = ask_preview(
        approval_id=id_of(approval),
        digest=body.digest,
        arguments=body.arguments,
        actor=request.auth,
    )
    if preview is None:
        raise InvalidInput("arguments", "have no preview: decide with these arguments")
    return Status(202, _read(id_of(approval), preview, request.auth))


@router.get("/approvals/{approval}/previews/{uuid:preview}", response=EditPreviewOut)
def read_edit_preview(request: Authenticated, approval: str, preview: UUID) -> EditPreviewOut:
    """Read your last preview of this call: how far it is, and what the call would do."""
    AccessService().require(request.auth, Scope.APPROVALS_READ)
    return _read(id_of(approval), preview, request.auth)


def _read(approval: UUID, preview: UUID, actor: Actor) -> EditPreviewOut:
    row = find_preview(approval_id=approval, preview=preview, actor=actor)
    if row is None:
        raise NotFound
    try:
        result = row.preview() if row.state == "done" else CallPreview()
    except (Tampered, KeyMissing) as exc:
        raise TamperedWith(str(exc)) from exc
    return EditPreviewOut(
        id=row.id,
        at=row.at,
        state=row.state,
        problem=row.problem,
        shown=result.shown,
        missing=result.missing,
        refused=result.refused,
    )
