"""Taking one's own decision back, from the page on which it was taken."""

from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from approvals import actions, permissions
from approvals.errors import AlreadyDecided, Cancelled, Expired, NotDecided, NotFound, TooLate
from runtime.ports import Forbidden


@require_POST
@login_required
def undo(request: HttpRequest, approval: UUID) -> HttpResponse:
    """The request is open again, and the run has not heard anything."""
    try:
        actions.undo(request=approval, actor=permissions.actor_of(request.user))
    except NotFound as exc:
        raise Http404 from exc
    except Forbidden as exc:
        raise PermissionDenied(exc.detail) from exc
    except (AlreadyDecided, Cancelled, Expired, NotDecided, TooLate) as exc:
        messages.error(request, f"Nothing was changed. {exc.detail}")
    else:
        messages.success(request, "Taken back. Nothing has been decided.")
    return redirect("approval", approval=approval)
