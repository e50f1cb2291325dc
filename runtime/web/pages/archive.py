"""Pages for admins: restore an archived run, put it under a legal hold, lift the hold, see its removed entries."""

from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods, require_safe

from runtime.control.access import readable
from runtime.control.interventions import hold as hold_run
from runtime.control.interventions import lift_hold as lift_run
from runtime.control.transfer import restore as restore_run
from runtime.errors import KeyMissing, Tampered
from runtime.reads.entries import RemovedEntry, removed_entries
from runtime.reads.runs import RunDetail
from runtime.web.pages import query_params
from runtime.web.pages.run import with_archive
from runtime.web.pages.run_actions import answer
from runtime.web.requests import actor_of, admins_only, form_text

ENTRIES = 50  # on one page


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArchiveForm:
    """The differences between the forms: address, action, the runs that it fits, and the texts."""

    url: str
    act: Callable[..., RunDetail]
    fits: Callable[[RunDetail], bool]
    title: str
    says: str
    refused: str
    other: str
    button: str
    keep: str


_RESTORE = _ArchiveForm(
    url="restore",
    act=restore_run,
    fits=lambda run: run.archived_at is not None,
    title="Restore",
    says="The file is verified, and the run is written into the database as it was. It stays there as long again"
    " as the rules of the archive say.",
    refused="Not restored",
    other="This run is not in the archive",
    button="Restore this run",
    keep="Leave it in the archive",
)
_HOLD = _ArchiveForm(
    url="hold",
    act=hold_run,
    fits=lambda run: run.removed_at is None and run.legal_hold is None,
    title="Legal hold for",
    says="Retention does not erase the run, and it does not leave the database for the archive, until an admin lifts"
    " the hold. If it is in the archive, its file stays.",
    refused="Not held",
    other="This run is under a legal hold, or its data was removed",
    button="Hold this run",
    keep="Do not hold it",
)
_LIFT = _ArchiveForm(
    url="lift_hold",
    act=lift_run,
    fits=lambda run: run.legal_hold is not None,
    title="Lift the legal hold of",
    says="The rules of retention and archive count for the run again, within an hour.",
    refused="Not lifted",
    other="This run is not under a legal hold",
    button="Lift the hold",
    keep="Keep the hold",
)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def restore(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the form; restore the run on POST."""
    return _answer(request, run, _RESTORE)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def hold(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the form; put the run under a legal hold on POST."""
    return _answer(request, run, _HOLD)


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def lift_hold(request: HttpRequest, run: UUID) -> HttpResponse:
    """Show the form; lift the legal hold on POST."""
    return _answer(request, run, _LIFT)


@require_safe
@admins_only
def removed(request: HttpRequest, run: UUID) -> HttpResponse:
    """List the entries that were moved to the archive while the run was live."""
    detail, problem = with_archive(readable(run, actor_of(request)))
    number, total = query_params.page_number(request), detail.history_begins - 1
    after = (number - 1) * ENTRIES
    if after >= max(1, total):
        raise Http404
    items: tuple[RemovedEntry, ...] = ()
    try:
        items = removed_entries(detail, after=after, limit=ENTRIES)
    except (Tampered, KeyMissing) as exc:
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


def _answer(request: HttpRequest, run: UUID, form: _ArchiveForm) -> HttpResponse:
    reason = form_text(request.POST, "reason")
    return answer(
        request,
        run,
        "runs/archive.html",
        act=lambda actor: form.act(run=run, reason=reason, actor=actor).id,
        context=lambda _actor, detail, _refusal: {"form": form, "fits": form.fits(detail)},
    )
