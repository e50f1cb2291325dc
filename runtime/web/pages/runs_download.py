"""Downloads the list of runs as CSV, with the filters of the page."""

import json
import logging
from collections.abc import Iterator
from datetime import tzinfo
from typing import Any
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse, StreamingHttpResponse
from django.utils import timezone
from django.views.decorators.http import require_GET

from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.ports.access import Actor
from runtime.queries import runs
from runtime.queries.runs import RunLine
from runtime.web import downloads
from runtime.web.pages import query_params, runs_filter
from runtime.web.requests import actor_of

ROWS = 200  # of one page, which are in memory at once
COLUMNS = (
    *("id", "agent", "business_key", "title", "status", "requester"),
    *("created_at", "ended_at", "seconds", "answer", "reason"),
)


_log = logging.getLogger(__name__)


@require_GET
@login_required
def download(request: HttpRequest) -> HttpResponse | StreamingHttpResponse:
    """Stream all runs that match, and log who exports what."""
    actor = actor_of(request)
    try:
        given, search = runs_filter.chosen(request), query_params.search(request)
        runs_filter.condition(wiring.access().readable_runs(actor), given, search)  # is it valid?
    except InvalidInput as exc:
        return HttpResponse(f"{exc.field} {exc.detail}.", "text/plain; charset=utf-8", status=422)
    found = downloads.start(_lines(actor, given, search, timezone.get_current_timezone()))
    if found is None:
        return downloads.busy()
    filters = {**given, **({"words": search} if search else {})}
    _log.info("%s exports the list of runs: %s", actor.person, json.dumps(filters))
    answer = StreamingHttpResponse(found, content_type="text/csv; charset=utf-8")
    name = f"runs-{timezone.localdate()}.csv"
    answer["Content-Disposition"] = f'attachment; filename="{name}"'
    return answer


def _lines(actor: Actor, given: dict[str, str], search: str, zone: tzinfo) -> Iterator[str]:
    yield downloads.row(COLUMNS)
    cursor: UUID | None = None
    while True:
        # The rights are read for each page: a person who loses them while it runs gets no further rows.
        with timezone.override(zone):  # that of the request, which is over
            where = runs_filter.condition(wiring.access().readable_runs(actor), given, search)
        page = runs.runs_page(
            where, limit=ROWS, cursor=cursor, oldest=given.get("order") == runs_filter.OLDEST
        )
        if page.items:
            yield "".join(downloads.row(_values(run)) for run in page.items)
        if page.next is None:
            return
        cursor = UUID(page.next)


def _values(run: RunLine) -> tuple[Any, ...]:
    return (
        str(run.id),
        run.agent,
        run.business_key,
        run.title,
        run.status,
        run.requester,
        run.created_at.isoformat(),
        run.ended_at.isoformat() if run.ended_at else None,
        round(run.lasted.total_seconds(), 3) if run.ended else None,
        run.answer,
        run.why,
    )
