"""The first page of admins: what needs them, pictures of the last days, runs by state, workers; and the page of costs.

A day is one in UTC. The pictures read the counts of the sweeper, so they are up to two minutes late.

The page of costs has usage by agent, model, person or day of any period, each row narrows the next list.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.urls import reverse
from django.utils import timezone

from approvals.governance import version_changes
from approvals.reads import pending_ages, review_times
from runtime.core.run.continuation import RunStatus
from runtime.errors import InvalidInput
from runtime.ports import wiring
from runtime.reads import run_figures, workers
from runtime.reads.journal import read_object_totals
from runtime.reads.labels import format_agent_title
from runtime.reads.run_figures import NamedUsage, UsageKey, list_limited_models, run_totals
from runtime.reads.suspects import count_suspects
from runtime.web import charts, downloads, requests
from runtime.web.charts import Chart, Series
from runtime.web.display import duration
from runtime.web.requests import admins
from runtime.web.scalars import dollars

RANGES = ("7", "30", "90")  # days, the first is shown without a choice
COST_KEYS = (UsageKey.AGENT, UsageKey.MODEL, UsageKey.PERSON)
OTHER = "all others"

VERDICT_SERIES = (
    Series(key="approved", label="Approved", colour="ok"),
    Series(key="edited", label="Approved with changes", colour="edited"),
    Series(key="answered", label="Answered", colour="info"),
    Series(key="changes_requested", label="Changes requested", colour="warn"),
    Series(key="denied", label="Denied", colour="danger"),
    Series(key="expired", label="Expired", colour="quiet"),
    Series(key="cancelled", label="Cancelled", colour="faint"),
)
TIME_SERIES = (
    Series(key="p90", label="9 of 10 within", colour="faint"),
    Series(key="median", label="Half within", colour="info"),
)
STATUS_SERIES = (
    Series(key=RunStatus.COMPLETED, label="Finished", colour="ok"),
    Series(key=RunStatus.EXPORTED, label="Exported", colour="info"),
    Series(key=RunStatus.CANCELLED, label="Cancelled", colour="quiet"),
    Series(key=RunStatus.FAILED, label="Failed", colour="danger"),
)
USAGE_COLUMNS = ("cost_usd", "replies", "input_tokens", "output_tokens", "replies_without_price")
MAX_ROWS = 500  # of the page; the file has all


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """A chart of the overview; `name` is that of its file, `sentence` describes it."""

    name: str
    title: str
    sentence: str
    chart: Chart


@admins.guard_page
def show_overview(request: HttpRequest) -> HttpResponse:
    """Show the counts of the installation, and the links to what an admin should look at."""
    live = workers.read_live_versions(workers.ALIVE)
    days, key = _read_range(request), _read_key(request)
    since, until = _compute_period(days)
    context = {
        "section": "overview",
        "at": timezone.now(),
        "totals": run_totals(),
        "suspects": count_suspects(),
        "limited_models": list_limited_models(),
        "pending": pending_ages.count_pending(),
        "share": review_times.compute_team_share(),
        "version_gates": version_changes.count(),
        "workers": workers.count_live_workers(workers.ALIVE),
        "late": workers.list_late_loops(),
        "store": read_object_totals(),
        "lags": [worker for worker in workers.list_worker_measures() if worker.is_alive],
        "without_worker": [
            name for name in wiring.resolve_catalogue().list_names() if name not in live
        ],
        "days": days,
        "ranges": RANGES,
        "cost_key": key,
        "cost_keys": COST_KEYS,
        "since": since,
        "last_day": until - timedelta(days=1),
        "pictures": draw_pictures(since, until, key),
        "costliest": run_figures.read_usage(key, since, until)[: charts.COLOURS],
    }
    return render(request, "approvals/overview.html", context)


@admins.guard_page
def download_picture(request: HttpRequest, name: str) -> HttpResponse:
    """Answer with the numbers of one picture as CSV."""
    since, until = _compute_period(_read_range(request))
    by_name = {picture.name: picture for picture in draw_pictures(since, until, _read_key(request))}
    if name not in by_name:
        raise Http404
    chart = by_name[name].chart
    rows = [(row.day.isoformat(), *(cell.text for cell in row.cells)) for row in chart.rows]
    return downloads.answer_table(
        name, ("day", *(line.label for line in chart.series)), reversed(rows)
    )


def draw_pictures(since: date, until: date, key: UsageKey) -> tuple[Picture, ...]:
    """Draw the pictures of the days from `since` to before `until`, the cost by `key`."""
    days = charts.list_days(since, until)
    decisions = pending_ages.read_days(since, until)
    costs = run_figures.read_daily_cost(key, since, until)
    parts = charts.select_largest(
        costs, other=OTHER, label=format_agent_title if key == "agent" else str
    )
    times = {
        count.day: {
            name: time.total_seconds()
            for name, time in (("p90", count.p90), ("median", count.median))
            if time is not None
        }
        for count in decisions
    }
    return (
        Picture(
            name="decisions",
            title="Decisions a day",
            sentence="Closed requests by verdict.",
            chart=charts.draw(
                days, VERDICT_SERIES, {count.day: count.verdicts for count in decisions},
                text=_format_number, url=_build_decisions_url,
            ),
        ),
        Picture(
            name="time-to-decide",
            title="Time to decide",
            sentence="From the request to a person’s decision.",
            chart=charts.draw(
                days, TIME_SERIES, times, text=lambda seconds: duration(timedelta(seconds=seconds)),
                url=lambda day, _: _build_decisions_url(day), stacked=False,
            ),
        ),
        Picture(
            name="runs",
            title="Runs a day",
            sentence="Ended runs by outcome.",
            chart=charts.draw(
                days, STATUS_SERIES,
                {count.day: count.statuses for count in run_figures.read_ended_days(since, until)},
                text=_format_number,
                url=lambda day, status: f"{reverse('runs')}?{urlencode({'status': status, 'q': f'ended:{day}'})}",
            ),
        ),
        Picture(
            name="cost",
            title=f"Cost a day by {key}",
            sentence="US dollars for replies of models. An agent’s cost is that of its runs, with their sub-agents.",
            chart=charts.draw(
                days, parts, charts.merge_others(costs, parts, other=OTHER),
                text=lambda micros: f"{dollars(micros)} $", url=lambda day, name: _build_cost_url(key, day, name),
            ),
        ),
    )  # fmt: skip


def _read_range(request: HttpRequest) -> str:
    return requests.read_choice(request, "days", RANGES) or RANGES[0]


def _read_key(request: HttpRequest) -> UsageKey:
    return UsageKey(requests.read_choice(request, "by", COST_KEYS) or UsageKey.AGENT)


def _compute_period(days: str) -> tuple[date, date]:
    """Return the first day, and the day after today."""
    until = datetime.now(UTC).date() + timedelta(days=1)
    return until - timedelta(days=int(days)), until


def _format_number(value: float) -> str:
    return f"{value:g}" if value < 1 else f"{value:.0f}"


def _build_decisions_url(day: date, verdict: str = "") -> str:
    start = datetime(day.year, day.month, day.day, tzinfo=UTC)
    instants = [f"{at:%Y-%m-%dT%H:%MZ}" for at in (start, start + timedelta(days=1))]
    query: dict[str, Any] = {"since": instants[0], "until": instants[1]}
    return (
        f"{reverse('history')}?{urlencode({**query, **({'verdict': verdict} if verdict else {})})}"
    )


def _build_cost_url(key: UsageKey, day: date, name: str) -> str:
    query = {"from": day.isoformat(), "to": day.isoformat()}
    filters = {"by": str(key)} if name == OTHER else {str(key): name}
    return f"{reverse('costs')}?{urlencode({**query, **filters})}"


@admins.guard_page
def show_costs(request: HttpRequest) -> HttpResponse:
    """Show what runs used in a period, or send it as CSV."""
    next_key = next((name for name in COST_KEYS if name not in request.GET), UsageKey.DAY)
    key = UsageKey(requests.read_choice(request, "by", tuple(UsageKey)) or next_key)
    only = {
        name: request.GET[name].replace("\x00", "") for name in COST_KEYS if name in request.GET
    }
    filters = {str(name): text for name, text in only.items()}
    problem, rows = None, tuple[NamedUsage, ...]()
    since, until = requests.read_period("", "")
    try:
        since, until = requests.read_period(request.GET.get("from", ""), request.GET.get("to", ""))
        rows = run_figures.read_usage(key, since, until, only)
    except InvalidInput as exc:
        problem = exc
    if request.GET.get("format") == "csv" and problem is None:
        columns = key, *USAGE_COLUMNS
        cells = (
            (row.name, row.cost, row.replies, row.input_tokens, row.output_tokens, row.unpriced)
            for row in rows
        )
        return downloads.answer_table(f"costs-by-{key}", columns, cells)
    period = {"from": since.isoformat(), "to": (until - timedelta(days=1)).isoformat()}
    removal_links = list[tuple[UsageKey, str, str]]()  # each filter, and the list without it
    for name, text in only.items():
        other_filters = {other: value for other, value in filters.items() if other != name}
        query = urlencode({**period, **other_filters, "by": str(key)})
        removal_links.append((name, text, f"?{query}"))
    linked_rows = list[tuple[NamedUsage, str]]()  # each with the address of the list inside it
    for row in rows[:MAX_ROWS]:
        inside = {"from": row.name, "to": row.name} if key is UsageKey.DAY else {str(key): row.name}
        linked_rows.append((row, f"?{urlencode({**period, **filters, **inside})}"))
    context: dict[str, Any] = {
        "section": "overview",
        "key": key,
        "keys": [
            (name, f"?{urlencode({**period, **filters, 'by': str(name)})}") for name in UsageKey
        ],
        "only": removal_links,
        "rows": linked_rows,
        "unlisted": len(rows[MAX_ROWS:]),
        "from": period["from"],
        "to": period["to"],
        "problem": problem,
        "query": urlencode({**period, **filters, "by": str(key)}),
        "kept": {**filters, "by": str(key)},
    }
    return render(request, "approvals/costs.html", context, status=422 if problem else 200)
