"""The page of costs, for admins: usage by agent, model, person or day of any period, each row narrows the next list."""

from datetime import timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from runtime.errors import InvalidInput
from runtime.reads import run_figures
from runtime.reads.run_figures import NamedUsage, UsageKey
from runtime.web import downloads
from runtime.web.pages import query_params
from runtime.web.requests import admins_only

MAX_ROWS = 500  # of the page; the file has all
FILTERS = (UsageKey.AGENT, UsageKey.MODEL, UsageKey.PERSON)


@require_safe
@admins_only
def costs(request: HttpRequest) -> HttpResponse:
    """Show what runs used in a period, or send it as CSV."""
    key = UsageKey(query_params.choice(request, "by", tuple(UsageKey)) or _next_key(request))
    only = {name: request.GET[name].replace("\x00", "") for name in FILTERS if name in request.GET}
    filters = {str(name): text for name, text in only.items()}
    problem, rows = None, tuple[NamedUsage, ...]()
    since, until = query_params.read_period("", "")
    try:
        since, until = query_params.read_period(
            request.GET.get("from", ""), request.GET.get("to", "")
        )
        rows = run_figures.read_usage(key, since, until, only)
    except InvalidInput as exc:
        problem = exc
    if request.GET.get("format") == "csv" and problem is None:
        return _csv(key, rows)
    period = {"from": since.isoformat(), "to": (until - timedelta(days=1)).isoformat()}
    context: dict[str, Any] = {
        "section": "overview",
        "key": key,
        "keys": [
            (name, f"?{urlencode({**period, **filters, 'by': str(name)})}") for name in UsageKey
        ],
        "only": [
            (name, text, f"?{urlencode({**period, **_without(filters, name), 'by': str(key)})}")
            for name, text in only.items()
        ],
        "rows": [(row, _link_into(key, row.name, period, filters)) for row in rows[:MAX_ROWS]],
        "unlisted": len(rows[MAX_ROWS:]),
        "from": period["from"],
        "to": period["to"],
        "problem": problem,
        "query": urlencode({**period, **filters, "by": str(key)}),
        "kept": {**filters, "by": str(key)},
    }
    return render(request, "approvals/costs.html", context, status=422 if problem else 200)


def _next_key(request: HttpRequest) -> UsageKey:
    """Return the first of agent, model and person that the address does not narrow."""
    return next((name for name in FILTERS if name not in request.GET), UsageKey.DAY)


def _without(only: dict[str, str], key: str) -> dict[str, str]:
    return {name: text for name, text in only.items() if name != key}


def _link_into(key: UsageKey, name: str, period: dict[str, str], only: dict[str, str]) -> str:
    """Return the address of the list inside one row."""
    if key is UsageKey.DAY:
        return f"?{urlencode({'from': name, 'to': name, **only})}"
    return f"?{urlencode({**period, **only, str(key): name})}"


def _csv(key: UsageKey, rows: tuple[NamedUsage, ...]) -> HttpResponse:
    columns = (key, "cost_usd", "replies", "input_tokens", "output_tokens", "replies_without_price")
    cells = (
        (row.name, row.cost, row.replies, row.input_tokens, row.output_tokens, row.unpriced)
        for row in rows
    )
    return downloads.table(f"costs-by-{key}", columns, cells)
