"""Checks an approval with changes: the arguments that a reviewer gives in place of the proposed ones.

Where the worker previewed the proposed call, it previews the edited one too, before a person can approve it. The
approval is bound to that preview, as any other is to the one of its request.
"""

import json
from dataclasses import replace
from uuid import UUID

from approvals.errors import TamperedWith
from approvals.models import Approval
from approvals.requests import schemas
from runtime.control import jobs
from runtime.control.edit import FIELD, edit
from runtime.core.values.enums import Edit, EffectClass, GateKind
from runtime.errors import InvalidInput, KeyMissing, Tampered
from runtime.keyring import sealing
from runtime.store.tables.jobs import EditPreviewRow


def check(approval: Approval, given: object) -> Edit:
    """Return the edit of the requested call. Raises InvalidInput naming `arguments` or a place in it.

    A person who denied a call has the last word in its run: no edit makes it after all.
    """
    edited = edit(
        tool=approval.tool,
        schema=json.loads(schemas.text_of(approval.schema)),
        path=tuple(approval.path),
        effect=EffectClass(approval.effect),
        args=json.loads(approval.args),
        new_args=given,
    )
    denied = Approval.objects.filter(
        run_id=approval.run_id,
        tool=approval.tool,
        kind=GateKind.APPROVAL,
        status=Approval.Status.DENIED,
        action_digest=edited.digest,
    )
    if denied.exists():
        raise InvalidInput(
            FIELD, "are those of a call that a person denied in this run: it stays denied"
        )
    return edited


def find_preview(approval: Approval, preview: object, by: str) -> EditPreviewRow | None:
    """Return the preview of an edit that this person asked for last, None if it has another id."""
    try:
        return jobs.find_preview(gate=approval.gate, by=by, preview=UUID(str(preview)))
    except ValueError:
        return None


def check_previewed(approval: Approval, preview: object, by: str) -> Edit:
    """Return the edit with the arguments and the result of a preview.

    Raises InvalidInput naming `preview`, `arguments` or a place in it; TamperedWith.
    """
    found = find_preview(approval, preview, by)
    if found is None:
        raise InvalidInput("preview", "is not your last one of this call: preview the edit again")
    if found.ended_at is None:
        raise InvalidInput("preview", "has no result yet")
    if found.problem:
        raise InvalidInput("preview", f"has no result: {found.problem}")
    try:
        result = found.preview()
    except (Tampered, KeyMissing) as exc:
        raise TamperedWith(str(exc)) from exc
    if result.refused:
        raise InvalidInput(FIELD, f"are refused by the tool: {result.refused}")
    return replace(
        check(approval, sealing.args_for_reviewers(approval.tool, found.arguments)), preview=result
    )
