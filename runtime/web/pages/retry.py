"""Two forms that make a run continue: retry of a failed run and, for admins, release from quarantine."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from runtime.control.release import release as release_run
from runtime.control.retry import retry as retry_run
from runtime.core.continuation import RunStatus
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries import crash_evidence
from runtime.queries.runs import RunDetail
from runtime.queries.transcript.transcript import read_transcript
from runtime.web.pages.action_form import Context, Refusal, answer
from runtime.web.requests import admins_only, form_text


@dataclass(frozen=True, slots=True, kw_only=True)
class _RetryForm:
    """The differences between the two forms: the status, the action, the extra context and the texts."""

    url: str
    status: RunStatus
    act: Callable[..., RunDetail]
    may: Callable[[Actor, RunDetail], bool]
    shows: Callable[[UUID], dict[str, Any]]
    verb: str
    ending: str
    refused: str
    other: str
    only: str
    forbidden: str
    why: str
    button: str
    keep: str


def _effects(run: UUID) -> dict[str, Any]:
    transcript = read_transcript(run)
    calls = [call for call in transcript.calls() if call.has_side_effects]
    return {"traces": calls, "unreadable": transcript.unreadable}


_RETRY = _RetryForm(
    url="retry",
    status=RunStatus.FAILED,
    act=retry_run,
    may=lambda actor, run: wiring.access().may_control(actor, run.requester),
    shows=_effects,
    verb="Try",
    ending="again",
    refused="Not tried again",
    other="This run cannot be tried again",
    only="Only a failed run whose journal still exists can be tried again.",
    forbidden="Only the person who started a run, and admins, may try it again.",
    why="Why it failed",
    button="Try this run again",
    keep="Keep it failed",
)
_RELEASE = _RetryForm(
    url="release",
    status=RunStatus.QUARANTINED,
    act=release_run,
    may=lambda actor, run: True,  # the page is for admins
    shows=lambda run: {"crashes": crash_evidence.crashes(run)},
    verb="Release",
    ending="from quarantine",
    refused="Not released",
    other="This run is not in quarantine",
    only="Only a run in quarantine can be released.",
    forbidden="Only admins may release a run from quarantine.",
    why="Why it is in quarantine",
    button="Release this run",
    keep="Keep it in quarantine",
)


@require_http_methods(["GET", "HEAD", "POST"])
@login_required
def retry(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the consequences of a retry and the form; retry the run on POST."""
    return _answer(request, run, _RETRY)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def release(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the reason of the quarantine and the form; release the run on POST."""
    return _answer(request, run, _RELEASE)


def _answer(request: HttpRequest, run: UUID, form: _RetryForm) -> HttpResponse:
    reason = form_text(request.POST, "reason")
    return answer(
        request,
        run,
        "runs/retry.html",
        act=lambda actor: form.act(run=run, reason=reason, actor=actor).id,
        context=partial(_context, form),
    )


def _context(form: _RetryForm, actor: Actor, shown: RunDetail, refusal: Refusal | None) -> Context:
    return {
        "form": form,
        "fits": shown.status == form.status
        and shown.removed_at is None
        and shown.archived_at is None,
        "may": form.may(actor, shown),
        **form.shows(shown.id),
    }
