"""Verifies a stored request and its decision, whenever it is shown and before it is decided.

Otherwise a program with write access to the database could change a request while a reviewer reads it, and restore it
before the click.
"""

import json

from approvals import stored_rows
from approvals.models import Request
from approvals.requests import schemas, snapshot, statements
from runtime.core.enums import Verdict
from runtime.errors import KeyMissing
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
        if request.status in _SIGNED:
            check_edited(request, statements.read(request))
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
    """Raise NotConfirmed unless the stored arguments of an approval with changes are the signed ones."""
    if (request.edited is not None) is not (said.verdict is Verdict.EDIT):
        raise NotConfirmed("the stored verdict differs from the signed one")
    if request.edited is not None and not is_erased(request):
        snapshot.check_edit(request, json.loads(request.edited), said.result)


def is_erased(request: Request) -> bool:
    """Tell whether retention removed the arguments, which it never does while the request is pending."""
    return (
        request.removed_at is not None
        and request.status != Request.Status.PENDING
        and request.args == _ERASED_ARGS
    )
