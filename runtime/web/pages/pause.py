"""Handles the buttons Pause and Resume of the run page."""

from collections.abc import Callable
from functools import partial
from uuid import UUID

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.views.decorators.http import require_POST

from runtime.control.pause import pause as pause_run
from runtime.control.pause import resume as resume_run
from runtime.errors import InvalidInput, RunEnded
from runtime.web.requests import actor_of, form_text


@require_POST
@login_required
def pause(request: HttpRequest, run: UUID) -> HttpResponse:
    """Pause the run: nothing new starts until it is resumed."""
    return _act(request, run, partial(pause_run, reason=""))


@require_POST
@login_required
def resume(request: HttpRequest, run: UUID) -> HttpResponse:
    """Resume the run."""
    return _act(request, run, partial(resume_run, reason=form_text(request.POST, "reason")))


def _act(request: HttpRequest, run: UUID, act: Callable[..., object]) -> HttpResponse:
    try:
        act(run=run, actor=actor_of(request))
    except InvalidInput as exc:
        messages.error(request, f"Nothing was changed: the {exc.field} {exc.detail}.")
    except RunEnded as exc:
        messages.error(request, f"Nothing was changed: the run is {exc.run_status} already.")
    return redirect("run", run=run)
