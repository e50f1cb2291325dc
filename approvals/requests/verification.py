"""Verifies a stored request and its decision, whenever it is shown and before it is decided.

Otherwise a program with write access to the database could change a request while a reviewer reads it, and restore it
before the click.
"""

import json
from typing import Any

from approvals import stored_rows
from approvals.allowances import terms as coverage
from approvals.allowances.terms import Action
from approvals.models import Request
from approvals.requests import schemas, snapshot, statements
from runtime.core.digest import sha256_of
from runtime.core.enums import Verdict
from runtime.errors import KeyMissing
from runtime.keyring import purposes, sealing, signatures
from runtime.keyring.signatures import Verifies
from runtime.ports.approvals import NotConfirmed

_ERASED_ARGS = "{}"
_SIGNED = (Request.Status.APPROVED, Request.Status.DENIED, Request.Status.ANSWERED)


def fault(request: Request) -> str | None:
    """Name the first value of this row that does not verify; None if all do.

    Costs a few hashes, and a query for a schema that this process has not read yet.
    """
    try:
        if not is_erased(request):
            snapshot.check_digests(request)
            schemas.text_of(request.schema)
            schemas.text_of(request.result_schema or "")
        snapshot.check_seal(request)
        _check_excluded(request)
        if request.allowance is not None:
            check_allowed(request)
        if request.allowance is None and request.status in _SIGNED:
            check_edited(request, statements.read(request))
        elif request.edited is not None or request.edited_preview is not None:
            raise NotConfirmed("the request has an edit that no person decided")
    except (NotConfirmed, KeyMissing) as exc:
        return str(exc)
    except (ValueError, TypeError) as exc:  # a column holds a value of another type
        return str(exc)
    return None


def _check_excluded(request: Request) -> None:
    """Raise NotConfirmed if a person of the sealed origin is not in `excluded`, by which lists are filtered."""
    missing = {*stored_rows.texts(request.origin)} - {*stored_rows.texts(request.excluded)}
    if missing:
        raise NotConfirmed(
            f"{', '.join(sorted(missing))} could decide, although the run's origin includes them"
        )


def check_edited(request: Request, said: statements.Statement) -> None:
    """Raise NotConfirmed unless stored arguments and preview of an approval with changes are the signed ones."""
    if (request.edited is not None) is not (said.verdict is Verdict.EDIT):
        raise NotConfirmed("the stored verdict differs from the signed one")
    if is_erased(request):
        return
    if request.edited is not None:
        snapshot.check_edit(request, json.loads(request.edited), said.result)
    preview = request.edited_preview
    if said.consequences != (None if preview is None else sha256_of(json.loads(preview))):
        raise NotConfirmed("the stored preview of the edited call differs from the signed one")


def check_allowed(request: Request, verifies: Verifies = signatures.verify_signature) -> None:
    """Raise NotConfirmed unless two people signed the allowance that the request names, and it covers the call."""
    if None in (request.statement, request.signature, request.key_id):
        raise NotConfirmed("the request has no signed allowance")
    signature = signatures.Signature(hex=str(request.signature), key_id=str(request.key_id))
    text = str(request.statement)
    if not verifies(purposes.RIGHTS, signature, text):
        raise NotConfirmed("the allowance differs from the signed one")
    said: dict[str, Any] = json.loads(text)
    stored = ("allowance", "confirmed", str(request.allowance), request.decided_by, "approved")
    signed = (*(said.get(name) for name in ("kind", "act", "allowance", "by")), request.status)
    if signed != stored:
        raise NotConfirmed("the signed act confirms no allowance of this request")
    terms = coverage.read(said["terms"])
    if request.decided_at is None or request.decided_at >= terms.ends_at:
        raise NotConfirmed("the allowance had ended")
    if not 0 < (request.allowance_use or 0) <= terms.count:
        raise NotConfirmed("the allowance was used up")
    if not is_erased(request):
        args = sealing.redacted_args(request.tool, arguments(request))
        other = coverage.not_covered(terms, action(request), args)
        if other is not None:
            raise NotConfirmed(f"the allowance does not cover the call: {other}")


def action(request: Request) -> Action:
    """Return what an allowance of the call of this request is bound to."""
    return Action(
        tool=request.tool,
        path=tuple(request.path),
        schema=request.schema,
        effect=request.effect,
        risk=request.risk,
    )


def arguments(request: Request) -> Any:
    """Return the arguments of the stored call. Raises ValueError."""
    return json.loads(request.args)


def is_erased(request: Request) -> bool:
    """Tell whether retention removed the arguments, which it never does while the request is pending."""
    return (
        request.removed_at is not None
        and request.status != Request.Status.PENDING
        and request.args == _ERASED_ARGS
    )
