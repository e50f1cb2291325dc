"""What people do with a run: cancel it, write to it, pause, resume, retry or release it.

A form for an action: GET shows it, POST performs the action, and a refusal shows the form again.

Admins also restore an archived run, put it under a legal hold, lift the hold, and see its removed entries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render

from runtime import errors
from runtime.control import interventions, transfer
from runtime.control.user_actions import require_readable_run
from runtime.core.run.continuation import RunStatus
from runtime.core.values.errors import NewerSchema
from runtime.core.values.limits import MAX_MESSAGE, MAX_REASON
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.reads import run_rows, suspects
from runtime.reads.entries import RemovedEntry, list_removed_entries
from runtime.reads.run_rows import RunDetail
from runtime.reads.transcript import read_transcript
from runtime.web import requests
from runtime.web.pages.run import with_archive
from runtime.web.requests import admins, read_actor, read_text, users

Refusal = errors.RequestError | errors.Tampered | errors.KeyMissing | NewerSchema
Context = dict[str, Any]
ENTRIES = 50  # on one page


def answer_form(
    request: HttpRequest,
    run: UUID,
    template: str,
    *,
    act: Callable[[Actor], UUID],
    context: Callable[[Actor, RunDetail, Refusal | None], Context],
) -> HttpResponse:
    """Show the form, or perform its action and redirect to the run that `act` returns."""
    actor, refusal = read_actor(request), None
    if request.method == "POST":
        try:
            return redirect("run", run=act(actor))
        except (errors.RequestError, errors.Tampered, errors.KeyMissing, NewerSchema) as exc:
            refusal = exc
    detail = require_readable_run(run, actor)
    page = {
        "run": detail,
        "section": "runs",
        "reason": ""
        if isinstance(refusal, errors.Forbidden)
        else read_text(request.POST, "reason"),
        "max_reason": MAX_REASON,
        "field": refusal if isinstance(refusal, errors.InvalidInput) else None,
        # the stored data that does not verify
        "unverified": "" if isinstance(refusal, errors.RequestError | None) else str(refusal),
        **context(actor, detail, refusal),
    }
    status = 200 if refusal is None else 409
    if isinstance(refusal, errors.RequestError):
        status = refusal.status
    return render(request, template, page, status=status)


@users.form
def cancel(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the consequences of cancelling and the form; cancel the run on POST."""
    reason = read_text(request.POST, "reason")
    act = partial(_cancel, run, reason)
    return answer_form(request, run, "runs/cancel.html", act=act, context=_cancel_context)


def _cancel(run: UUID, reason: str, actor: Actor) -> UUID:
    try:
        return interventions.cancel(run=run, reason=reason, actor=actor).id
    except errors.RunEnded:
        ending = read_transcript(run).ending
        if ending is None or ending.by != actor.person:
            raise
        return run  # a double click is redirected to the run


def _cancel_context(actor: Actor, detail: RunDetail, refusal: Refusal | None) -> Context:
    transcript = read_transcript(detail.id)
    return {
        "transcript": transcript,
        "traces": [call for call in transcript.calls() if call.has_side_effects],
        "may_cancel": wiring.resolve_access().may_cancel(actor, detail.requester),
        "cancel_requested": not detail.ended and run_rows.is_cancel_requested(detail.id),
        "late": isinstance(refusal, errors.RunEnded),
    }


@users.form
def message(request: HttpRequest, run: UUID) -> HttpResponse:
    """Send a message to the agent. A refused message is shown again with the reason."""
    text, cuts = read_text(request.POST, "text"), bool(request.POST.get("cut_reply"))
    return answer_form(
        request,
        run,
        "runs/message.html",
        act=lambda actor: (
            interventions.send_message(run=run, text=text, cut_reply=cuts, actor=actor).id
        ),
        context=partial(_message_context, text, cuts),
    )


def _message_context(
    text: str, cuts: bool, actor: Actor, detail: RunDetail, refusal: Refusal | None
) -> Context:
    late, problem = detail.status if detail.ended else "", ""
    match refusal:
        case errors.InvalidInput():
            problem = f"the text {refusal.detail}."
        case errors.TooManyUndelivered():
            problem = refusal.detail
        case errors.RunEnded():
            late = refusal.run_status
    return {
        "may_write": wiring.resolve_access().may_control(actor, detail.requester),
        "late": late,
        "text": text,
        "cuts": cuts,
        "problem": problem,
        "max_message": MAX_MESSAGE,
    }


@users.action
def pause(request: HttpRequest, run: UUID) -> HttpResponse:
    """Pause the run: nothing new starts until it is resumed."""
    return _change_pace(request, run, partial(interventions.pause, reason=""))


@users.action
def resume(request: HttpRequest, run: UUID) -> HttpResponse:
    """Resume the run."""
    return _change_pace(
        request, run, partial(interventions.resume, reason=read_text(request.POST, "reason"))
    )


def _change_pace(request: HttpRequest, run: UUID, act: Callable[..., object]) -> HttpResponse:
    try:
        act(run=run, actor=read_actor(request))
    except errors.InvalidInput as exc:
        messages.error(request, f"Nothing was changed: the {exc.field} {exc.detail}.")
    except errors.RunEnded as exc:
        messages.error(request, f"Nothing was changed: the run is {exc.run_status} already.")
    return redirect("run", run=run)


@dataclass(frozen=True, slots=True, kw_only=True)
class _ActForm:
    """The differences between the forms: address, action, the runs that it fits, more context, and the words."""

    url: str
    act: Callable[..., RunDetail]
    fits: Callable[[RunDetail], bool]
    may: Callable[[Actor, RunDetail], bool] = lambda actor, run: True  # the page is for admins
    shows: Callable[[UUID], Context] = lambda run: {}
    template: str = "runs/archive.html"
    words: Mapping[str, str]


def _build_effects_context(run: UUID) -> Context:
    transcript = read_transcript(run)
    calls = [call for call in transcript.calls() if call.has_side_effects]
    return {"traces": calls, "unreadable": transcript.unreadable}


def _is_here(run: RunDetail, status: RunStatus) -> bool:
    return run.status == status and run.removed_at is None and run.archived_at is None


_RETRY = _ActForm(
    url="retry",
    template="runs/retry.html",
    act=interventions.retry,
    fits=lambda run: _is_here(run, RunStatus.FAILED),
    may=lambda actor, run: wiring.resolve_access().may_control(actor, run.requester),
    shows=_build_effects_context,
    words={
        "verb": "Try",
        "ending": "again",
        "refused": "Not tried again",
        "other": "This run cannot be tried again",
        "only": "Only a failed run whose journal still exists can be tried again.",
        "forbidden": "Only the person who started a run, and admins, may try it again.",
        "reason_title": "Why it failed",
        "button": "Try this run again",
        "keep": "Keep it failed",
    },
)
_RELEASE = _ActForm(
    url="release",
    template="runs/retry.html",
    act=interventions.release,
    fits=lambda run: _is_here(run, RunStatus.QUARANTINED),
    shows=lambda run: {"crashes": suspects.list_crashes(run)},
    words={
        "verb": "Release",
        "ending": "from quarantine",
        "refused": "Not released",
        "other": "This run is not in quarantine",
        "only": "Only a run in quarantine can be released.",
        "reason_title": "Why it is in quarantine",
        "button": "Release this run",
        "keep": "Keep it in quarantine",
    },
)
_RESTORE = _ActForm(
    url="restore",
    act=transfer.restore,
    fits=lambda run: run.archived_at is not None,
    words={
        "title": "Restore",
        "says": "The file is verified, and the run is written into the database as it was. It stays there as long"
        " again as the rules of the archive say.",
        "refused": "Not restored",
        "other": "This run is not in the archive",
        "button": "Restore this run",
        "keep": "Leave it in the archive",
    },
)
_HOLD = _ActForm(
    url="hold",
    act=interventions.hold,
    fits=lambda run: run.removed_at is None and run.legal_hold is None,
    words={
        "title": "Legal hold for",
        "says": "Retention does not erase the run, and it does not leave the database for the archive, until an admin"
        " lifts the hold. If it is in the archive, its file stays.",
        "refused": "Not held",
        "other": "This run is under a legal hold, or its data was removed",
        "button": "Hold this run",
        "keep": "Do not hold it",
    },
)
_LIFT = _ActForm(
    url="lift_hold",
    act=interventions.lift_hold,
    fits=lambda run: run.legal_hold is not None,
    words={
        "title": "Lift the legal hold of",
        "says": "The rules of retention and archive count for the run again, within an hour.",
        "refused": "Not lifted",
        "other": "This run is not under a legal hold",
        "button": "Lift the hold",
        "keep": "Keep the hold",
    },
)


def _make_page(form: _ActForm) -> Callable[[HttpRequest, UUID], HttpResponse]:
    """Make the page that shows the form, and performs its action on POST."""

    def page(request: HttpRequest, run: UUID) -> HttpResponse:
        reason = read_text(request.POST, "reason")
        return answer_form(
            request,
            run,
            form.template,
            act=lambda actor: form.act(run=run, reason=reason, actor=actor).id,
            context=lambda actor, detail, _refusal: {
                "form": form,
                "fits": form.fits(detail),
                "may": form.may(actor, detail),
                **form.shows(detail.id),
            },
        )

    return page


retry = users.form(_make_page(_RETRY))
release = admins.form(_make_page(_RELEASE))
restore = admins.form(_make_page(_RESTORE))
hold = admins.form(_make_page(_HOLD))
lift_hold = admins.form(_make_page(_LIFT))


@admins.guard_page
def show_removed_entries(request: HttpRequest, run: UUID) -> HttpResponse:
    """List the entries that were moved to the archive while the run was live."""
    detail, problem = with_archive(require_readable_run(run, read_actor(request)))
    number, total = requests.read_page_number(request), detail.history_begins - 1
    after = (number - 1) * ENTRIES
    if after >= max(1, total):
        raise Http404
    items: tuple[RemovedEntry, ...] = ()
    try:
        items = list_removed_entries(detail, after=after, limit=ENTRIES)
    except (errors.Tampered, errors.KeyMissing) as exc:
        problem = problem or str(exc)
    last = min(after + ENTRIES, total)
    context = {
        "section": "runs",
        "run": detail,
        "problem": problem,
        "items": items,
        "first": after + 1,
        "last": last,
        "total": total,
        "before": number - 1,
        "after": number + 1 if last < total else 0,
    }
    return render(request, "runs/removed.html", context)
