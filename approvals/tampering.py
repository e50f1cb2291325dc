"""Whether a stored request is what was asked, and its decision what was signed: looked at whenever it is shown.

Who writes to the database could show one thing to a reviewer and put the other back before the click.
"""

from approvals import frozen, permissions, statements
from approvals.models import Request
from runtime.errors import KeyMissing
from runtime.ports import NotConfirmed

_REMOVED_ARGS = "{}"
_SIGNED = (Request.Status.APPROVED, Request.Status.DENIED, Request.Status.ANSWERED)


def fault(request: Request) -> str | None:
    """What does not hold of this row, None if it verifies. A few hashes, no query."""
    try:
        if not is_removed(request):
            frozen.check_digests(request)
        frozen.check_seal(request)
        _check_excluded(request)
        if request.status in _SIGNED:
            statements.read(request)
    except (NotConfirmed, KeyMissing) as exc:
        return str(exc)
    except (ValueError, TypeError) as exc:  # a column holds something of another kind
        return str(exc)
    return None


def _check_excluded(request: Request) -> None:
    """Raise NotConfirmed if a person of the sealed origin is not excluded, because lists go by that column."""
    missing = {*permissions.texts(request.origin)} - {*permissions.texts(request.excluded)}
    if missing:
        raise NotConfirmed(
            f"{', '.join(sorted(missing))} would be asked to decide on their own run"
        )


def is_removed(request: Request) -> bool:
    """Whether retention took the arguments. It takes none that wait, whatever the column says."""
    return (
        request.removed_at is not None
        and request.status != Request.Status.PENDING
        and request.args == _REMOVED_ARGS
    )
