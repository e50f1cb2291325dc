"""What the pages of replays and of trials share: the job of the address, the others, and the part that changes."""

from collections.abc import Sequence
from typing import Any, TypeVar

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.cache import patch_vary_headers

from runtime.store.tables.jobs import JobRow
from runtime.web.pages import query_params

R = TypeVar("R", bound=JobRow)


def requested_job(request: HttpRequest, parameter: str, newest: Sequence[R]) -> R | None:
    """Return the job named in the URL, or the latest one; None if there is none. Raise Http404 if it is not listed."""
    job_id = request.GET.get(parameter)
    if job_id is None:
        return newest[0] if newest else None
    for row in newest:
        if str(row.id) == job_id:
            return row
    raise Http404


def list_context(job: JobRow | None, newest: Sequence[JobRow]) -> dict[str, Any]:
    """Return what a page says of the jobs besides this one."""
    return {
        "other_jobs": [row for row in newest if job and row.id != job.id],
        "is_last": job is not None and job.id == newest[0].id,
        "is_open": bool(newest) and newest[0].ended_at is None,
    }


def render_live(
    request: HttpRequest, template: str, context: dict[str, Any], status: int
) -> HttpResponse:
    """Render the page, for one that is already open only the part that changes."""
    name = f"{template}#live" if query_params.is_htmx(request) else template
    answer = render(request, name, context, status=status)
    patch_vary_headers(answer, ["HX-Request"])
    return answer
