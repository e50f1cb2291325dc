"""The history of decisions: a page with filters, the same rows as CSV and JSON lines, and the evidence of one.

The files are written one page of rows at a time. Rows decided meanwhile are newer than the first page, so they are not
in them.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta, tzinfo
from enum import StrEnum
from itertools import groupby
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_GET

from approvals.errors import TamperedWith
from approvals.people import preferences as zones
from approvals.reads import approval_views, filters, history, review_times
from approvals.reads.filters import DecisionFilter
from approvals.reads.history import HistoryPage, PastDecision
from approvals.rights import principals
from approvals.rights.principals import Principal, Scope
from approvals.signed import audit
from runtime.errors import InvalidInput
from runtime.ports.access import Actor
from runtime.reads import outcomes, time_limits
from runtime.reads.outcomes import CallEnd, OutcomeLabel
from runtime.web import downloads
from runtime.web.downloads import Download, format_row
from runtime.web.requests import users

ROWS = history.MAX_LIMIT  # of one page, which are in memory at once


class Format(StrEnum):
    """A format of the file."""

    CSV = "csv"
    JSONL = "jsonl"


CONTENT_TYPES = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.JSONL: "application/x-ndjson; charset=utf-8",
}
COLUMNS = (
    "decided_at",
    "verdict",
    "decided_by",
    "decided_for",
    "voters",
    "reason",
    "channel",
    "seconds_to_decide",
    "outcome",
    "kind",
    "tool",
    "path",
    "risk",
    "sentence",
    "edits",
    "requester",
    "created_at",
    "request",
    "run",
    "tampered",
)


def start(actor: Actor, criteria: DecisionFilter, format: Format) -> Download | None:
    """Return the file, and log who exports what. None if too many are under way."""
    download = downloads.start(_write_lines(actor, criteria, format))
    if download is not None:
        parameters = {**criteria.texts, **({"words": criteria.words} if criteria.words else {})}
        audit.log_change(
            actor.person, f"exports the history of decisions as {format}: {json.dumps(parameters)}"
        )
    return download


def collect_values(item: PastDecision) -> dict[str, Any]:
    """Return the columns of one decision."""
    special = {
        "decided_at": item.decided_at.isoformat(),
        "voters": [
            {
                "person": voter.person,
                "voted_for": voter.absent,
                "at": voter.at.isoformat(),
                "reason": voter.reason,
            }
            for voter in item.voters
        ],
        "path": list(item.path),
        "edits": [
            {"path": edit.path, "before": edit.before, "after": edit.after} for edit in item.edits
        ],
        "created_at": item.created_at.isoformat(),
        "request": str(item.id),
        "run": str(item.run),
    }
    return {name: special[name] if name in special else getattr(item, name) for name in COLUMNS}


def _list_cells(item: PastDecision) -> Iterator[Any]:
    """Return the columns of one decision as text that a spreadsheet shows."""
    texts = {
        "voters": ", ".join(
            f"{voter.person} for {voter.absent}" if voter.absent else voter.person
            for voter in item.voters
        ),
        "edits": "\n".join(
            f"{edit.path}: {_format_json(edit.before)} → {_format_json(edit.after)}"
            for edit in item.edits
        ),
    }
    for name, value in collect_values(item).items():
        yield texts.get(name, value)


def _format_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _write_lines(actor: Actor, criteria: DecisionFilter, format: Format) -> Iterator[str]:
    if format is Format.CSV:
        yield format_row(COLUMNS)
    cursor: str | None = None
    while True:
        # The rights are read for each page: a person who loses them while it runs gets no further rows.
        principal = principals.find_principal(actor)
        page = history.read_page(principal, criteria, limit=ROWS, cursor=cursor)
        if page.items and format is Format.CSV:
            yield "".join(format_row(_list_cells(item)) for item in page.items)
        elif page.items:
            yield "".join(
                f"{json.dumps(collect_values(item), ensure_ascii=False)}\n" for item in page.items
            )
        cursor = page.next
        if cursor is None:
            return


_EMPTY = HistoryPage(items=(), next=None, until=None)
# Labels of outcomes without a result, or whose journal entry retention removed, and their colours.
_LABELS = {
    "done": ("Done", "ok"),
    "failed": ("Failed", "danger"),
    "in_doubt": ("In doubt", "warn"),
    "answered": ("Answered, not made", ""),
    "asked_again": ("Not run, asked again", "warn"),
}
_CHANNELS = {
    "page": "on the page",
    "batch": "together with others",
    "api": "through the API",
    "slack": "in Slack",
    "allowance": "by an allowance",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """A decision with the outcome of its call, the words for its channel, and the open request about its outcome."""

    item: PastDecision
    outcome: OutcomeLabel | None
    channel: str
    in_doubt: UUID | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DayLink:
    """A link to the decisions of a day, or since a day."""

    label: str
    query: str
    is_chosen: bool


@users.guard_page
def show(request: HttpRequest) -> HttpResponse:
    """Show one page of the decisions that this person may read."""
    principal = principals.find_principal(principals.make_actor(request.user))
    zone, cursor = zones.read_reader_zone(request), request.GET.get("cursor")
    problem, page = None, _EMPTY
    try:
        page = history.read_page(principal, _read_criteria(request, zone, "cursor"), cursor=cursor)
    except InvalidInput as exc:
        if exc.field == "cursor":
            raise Http404(exc.detail) from exc
        problem = exc
    decides = principal is not None and any(
        principal.has(scope) for scope in (Scope.APPROVALS_DECIDE, Scope.ADMIN)
    )
    rows_by_day = groupby(
        build_decision_rows(page.items, principal),
        key=lambda row: row.item.decided_at.astimezone(zone).date(),
    )
    days = [list(rows) for _, rows in rows_by_day]
    with timezone.override(zone):
        return render(
            request,
            "approvals/history.html",
            {
                "section": "inbox",
                "days": [(rows[0].item.decided_at, rows) for rows in days],
                "page": page,
                "next": page.next,
                "share": review_times.compute_team_share() if decides else None,
                "no_notes": time_limits.is_used_up(),
                "first_page": cursor is None,
                **_build_filters_context(request, page.items, zone),
                "zone": str(zone),
                "problem": problem,
                "wrong_search": problem is not None and problem.field == "q",
            },
            status=422 if problem else 200,
        )


@require_GET
@login_required
def download(request: HttpRequest, format: str) -> downloads.Answer:
    """Stream all decisions that match, as `csv` or `jsonl`."""
    actor = principals.make_actor(request.user)
    zone = zones.read_reader_zone(request)
    try:
        criteria = _read_criteria(request, zone)
        lines = start(actor, criteria, Format(format))
    except InvalidInput as exc:
        return downloads.refuse(exc)
    name = f"decisions-{timezone.localdate(timezone=zone)}.{format}"
    return downloads.stream(lines, name, CONTENT_TYPES[Format(format)])


@users.guard_page
def download_evidence(request: HttpRequest, approval_id: UUID) -> HttpResponse:
    """Send the signed decision. A request that does not verify has none."""
    approval = approval_views.read_approval(approval_id, actor=principals.make_actor(request.user))
    if approval.tampered:
        problem = TamperedWith(approval.tampered)
        return HttpResponse(problem.detail, "text/plain; charset=utf-8", status=problem.status)
    if not approval.is_signed:
        raise Http404
    answer = JsonResponse(history.read_evidence(approval), json_dumps_params={"indent": 1})
    answer["Content-Disposition"] = f'attachment; filename="decision-{approval.id}.json"'
    return answer


def _read_criteria(request: HttpRequest, zone: tzinfo, *extra_keys: str) -> DecisionFilter:
    """Read the filters of the address. Raises InvalidInput naming an unknown one."""
    for key in request.GET:
        if key not in (*filters.KEYS, "q", *extra_keys):
            names = ", ".join((*filters.KEYS, "q"))
            raise InvalidInput(key[:40], f"is not a filter of this list (known are {names})")
    return filters.read_criteria(request.GET.dict(), zone)


def build_decision_rows(
    items: tuple[PastDecision, ...], principal: Principal | None
) -> Iterator[DecisionRow]:
    """Add to each decision what a list shows of its outcome."""
    ends = {
        item.id: CallEnd(run=item.run, frame=item.frame, call=item.call, position=item.position)
        for item in items
        if item.position is not None and not item.tampered
    }
    labels = {} if time_limits.is_used_up() else outcomes.read_outcomes(ends.values())
    doubts = history.open_in_doubt(principal, items)
    for item in items:
        outcome = labels.get(ends[item.id]) if item.id in ends else None
        if outcome is None and item.outcome in _LABELS:
            label, css_class = _LABELS[item.outcome]
            outcome = OutcomeLabel(label=label, css_class=css_class)
        if outcome is not None and item.is_question:
            outcome = replace(outcome, label="Answered")
        yield DecisionRow(
            item=item,
            outcome=outcome,
            channel=_CHANNELS.get(item.channel or "", ""),
            in_doubt=doubts.get((item.run, item.frame, item.call)),
        )


def _build_filters_context(
    request: HttpRequest, items: Sequence[PastDecision], zone: tzinfo
) -> dict[str, Any]:
    """Build the context of the filters: values, choices, names to suggest, and links to days, which keep the others."""
    typed = {key: request.GET.get(key, "").strip() for key in (*filters.KEYS, "q")}
    parameters = {key: value for key, value in typed.items() if value}
    deciders = {item.decided_by for item in items if item.decided_by}
    names = {"person": sorted(deciders), **filters.collect_names(items)}
    today = timezone.localdate(timezone=zone)
    days = [today - timedelta(days=back) for back in range(8)]
    labels = ["Today", "Yesterday", *(f"{day:%A}" for day in days[2:7]), f"Last {days[7]:%A}"]
    spans = [
        _build_day_link(label, parameters, {"since": day, "until": day})
        for label, day in zip(labels, days, strict=True)
    ]
    this_month = _build_day_link("This month", parameters, {"since": today.replace(day=1)})
    return {
        "spans": [_build_day_link("All", parameters, {}), *spans, this_month],
        "typed": typed,
        "choices": [  # each value with its label, and whether it is chosen
            (key, [(text, text.replace("_", " "), text == typed[key].lower()) for text in texts])
            for key, texts in filters.CHOICES.items()
        ],
        "names": {name: names[name] for name in filters.NAMES},
        # A browser would empty a field for a day that holds a time.
        "date_types": {
            key: "date" if len(typed[key]) in (0, len("2026-11-24")) else "text"
            for key in ("since", "until")
        },
        "filtered": " ".join(f"{key}:{value}" for key, value in parameters.items() if key != "q"),
        "keep": f"{urlencode(parameters)}&" if parameters else "",
        "max_filter": filters.MAX_LENGTH,
        "operators": filters.KEYS,
    }


def _build_day_link(
    label: str, parameters: Mapping[str, str], dates: Mapping[str, date]
) -> DayLink:
    other_parameters = {
        key: value for key, value in parameters.items() if key not in ("since", "until")
    }
    day_parameters = {key: str(day) for key, day in dates.items()}
    current: dict[str, Any] = {
        key: parameters[key] for key in ("since", "until") if key in parameters
    }
    return DayLink(
        label=label,
        query=urlencode({**other_parameters, **day_parameters}),
        is_chosen=current == day_parameters,
    )
