"""Adds a person's comment to a request, pending or decided. The agent and its model never receive it."""

from typing import Final
from uuid import UUID

from django.db import transaction

from approvals import clock
from approvals.models import Comment
from approvals.queries import requests
from approvals.rights import principals
from approvals.rights.scopes import Scope
from approvals.signed import audit, rows
from runtime.control.access import validate_text as checked_text
from runtime.control.transaction import notify
from runtime.core.values.json_values import sha256_of
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

MAX_COMMENT: Final = 2_000  # characters
MAX_COMMENTS: Final = 200  # of one request


def add(*, approval_id: UUID, text: object, actor: Actor) -> Comment:
    """Add a comment by a person who may read the request.

    Raises, in this order: NotFound; Forbidden (`scope`); InvalidInput naming `text`.
    """
    with transaction.atomic():
        audit.lock_run_of(approval_id)
        principal = principals.principal_of(actor)
        approval = requests.readable(approval_id, principal)
        if principal is None or Scope.APPROVALS_DECIDE not in principal.scopes:
            raise Forbidden(
                "scope", f"This token does not have the scope {Scope.APPROVALS_DECIDE}."
            )
        said = checked_text("text", text, MAX_COMMENT, required="must not be empty")
        if approval.removed_at is not None:
            raise InvalidInput("text", "cannot be added: this request was removed under retention")
        if Comment.objects.filter(approval=approval).count() >= MAX_COMMENTS:
            raise InvalidInput(
                "text", f"cannot be added: a request has at most {MAX_COMMENTS} comments"
            )
        at = clock.now()
        made = Comment(approval=approval, person=actor.person, text=said, at=at)
        rows.add(made)
        audit.append(
            run=approval.run_id,
            actor=actor,
            act="commented",
            subject=f"request {approval.id}",
            detail={"digest": approval.approval_digest, "comment": sha256_of(said)},
            at=at,
        )
        notify(approval.run_id, hint=False)
    return made
