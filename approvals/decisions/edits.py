"""Checks an approval with changes: the arguments that a reviewer gives in place of the proposed ones."""

import json

from approvals.models import Request
from approvals.requests import schemas
from runtime.control.edit import FIELD, edit
from runtime.core.enums import Edit, EffectClass, GateKind
from runtime.errors import InvalidInput


def check(row: Request, given: object) -> Edit:
    """Return the edit of the requested call. Raises InvalidInput naming `arguments` or a place in it.

    A person who denied a call has the last word in its run: no edit makes it after all.
    """
    edited = edit(
        tool=row.tool,
        schema=json.loads(schemas.text_of(row.schema)),
        path=tuple(row.path),
        effect=EffectClass(row.effect),
        args=json.loads(row.args),
        given=given,
    )
    denied = Request.objects.filter(
        run_id=row.run_id,
        tool=row.tool,
        kind=GateKind.APPROVAL,
        status=Request.Status.DENIED,
        action_digest=edited.digest,
    )
    if denied.exists():
        raise InvalidInput(
            FIELD, "are those of a call that a person denied in this run: it stays denied"
        )
    return edited
