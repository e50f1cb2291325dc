"""`/metrics`: what Prometheus reads. Workers have no address, so the web process reads their counts from Postgres.

It answers a program on the same machine, or one with SIGNOFF_METRICS_TOKEN. A fixed number of queries serves it.
"""

import hmac
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from ipaddress import ip_address

from django.conf import settings
from django.db import DatabaseError
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe
from prometheus_client import CollectorRegistry, core
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from approvals.outbox import messages
from approvals.reads import pending_ages
from runtime.core.values.budgets import MICROS
from runtime.reads import run_figures, workers
from runtime.reads.suspects import count_suspects
from runtime.store.workers import accumulate_buckets

FORWARDED = (
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Real-IP",
    "Forwarded",
    "Via",
)
AGES = ("1h", "1d", "7d", "older")  # of pending requests; each but the last is an upper bound
WORKER = ("worker", "host", "process")


@require_safe
def show_metrics(request: HttpRequest) -> HttpResponse:
    """Answer with all measures, 401 for a wrong token, 403 for other hosts without a token, 503 if Postgres is down."""
    if (refusal := _find_refusal(request)) is not None:
        return refusal
    registry = CollectorRegistry(auto_describe=False)
    registry.register(MetricsCollector())
    encode, content_type = choose_encoder(request.headers.get("Accept", ""))
    try:
        return HttpResponse(encode(registry), content_type=content_type)
    except DatabaseError:
        return _answer_plain(503, "Postgres cannot be reached, or lacks a migration.")


def _find_refusal(request: HttpRequest) -> HttpResponse | None:
    """Return the answer to a client that may not read the measures, None if it may."""
    # A program on this machine may. A proxy there passes on the requests of others.
    if not settings.BEHIND_PROXY and not any(name in request.headers for name in FORWARDED):
        with suppress(ValueError):
            if ip_address(request.META.get("REMOTE_ADDR", "")).is_loopback:
                return None
    authorization = request.headers.get("Authorization")
    if authorization is None:
        return _answer_plain(
            403, "Send Authorization: Bearer and the token of SIGNOFF_METRICS_TOKEN."
        )
    token = settings.SIGNOFF_METRICS_TOKEN
    if token and hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
        return None
    answer = _answer_plain(401, "This is not the token of SIGNOFF_METRICS_TOKEN.")
    answer["WWW-Authenticate"] = "Bearer"
    return answer


def _answer_plain(status: int, text: str) -> HttpResponse:
    return HttpResponse(f"{text}\n", status=status, content_type="text/plain; charset=utf-8")


class MetricsCollector(Collector):
    """Reads everything anew for each answer."""

    def collect(self) -> Iterator[core.Metric]:
        """Yield each family, also those without a value now."""
        yield from _measure_workers()
        yield from _measure_sweepers()
        yield from _measure_requests()
        yield from _measure_runs()
        yield from _measure_usage()


def _measure_workers() -> Iterator[core.Metric]:
    # A histogram and no quantiles, because Prometheus can add up histograms of several workers
    commits = core.HistogramMetricFamily(
        "signoff_step_commit_seconds",
        "Time from the first attempt to commit a step until it was committed.",
        labels=WORKER,
    )
    retries = core.CounterMetricFamily(
        "signoff_retries",
        "Attempts that ended without a result and are made again.",
        labels=(*WORKER, "call", "cause"),
    )
    errors = core.CounterMetricFamily(
        "signoff_model_errors", "Model calls without a usable reply.", labels=WORKER
    )
    tokens = core.CounterMetricFamily(
        "signoff_tokens", "Tokens of model replies.", labels=(*WORKER, "kind")
    )
    beats = core.GaugeMetricFamily(
        "signoff_worker_beat_age_seconds", "Time since the worker's heartbeat.", labels=WORKER
    )
    for worker in workers.list_worker_measures():
        labels, counts = (worker.worker, worker.host, str(worker.process)), worker.measures
        beats.add_metric(labels, worker.beat_age)
        commits.add_metric(labels, accumulate_buckets(counts), counts["seconds"])
        errors.add_metric(labels, counts["model_errors"])
        for name, count in counts["retries"].items():
            retries.add_metric((*labels, *name.split()), count)
        for kind, count in counts["tokens"].items():
            tokens.add_metric((*labels, kind), count)
    yield from (commits, retries, errors, tokens, beats)
    yield _make_gauge(
        "workers_live", "Workers that can take runs.", workers.count_live_workers(workers.ALIVE)
    )


def _measure_sweepers() -> Iterator[core.Metric]:
    took = core.GaugeMetricFamily(
        "signoff_sweep_seconds", "Time that the last round of a loop took.", labels=("loop",)
    )
    age = core.GaugeMetricFamily(
        "signoff_sweep_age_seconds", "Time since the last round of a loop.", labels=("loop",)
    )
    late = core.GaugeMetricFamily(
        "signoff_sweep_late_after_seconds", "Age at which a loop is late.", labels=("loop",)
    )
    for loop in workers.list_loop_measures():
        if loop.took is not None:
            took.add_metric((loop.name,), loop.took)
        age.add_metric((loop.name,), loop.age)
        late.add_metric((loop.name,), loop.late_after)
    yield from (took, age, late)


def _measure_requests() -> Iterator[core.Metric]:
    pending = pending_ages.count_pending()
    ages = core.GaugeMetricFamily(
        "signoff_requests_pending", "Pending requests by age.", labels=("age",)
    )
    for name, age in zip(AGES, pending.ages, strict=True):
        ages.add_metric((name,), age.number)
    yield ages
    yield _make_gauge("requests_overdue", "Pending requests past their deadline.", pending.overdue)
    yield _make_gauge("requests_in_doubt", "Calls whose outcome is unknown.", pending.in_doubt)
    unsent, unsent_age = messages.count_unsent()
    yield _make_gauge("messages_unsent", "Messages to other programs that none took.", unsent)
    yield _make_gauge("message_age_seconds", "Time since the oldest event among them.", unsent_age)


def _measure_runs() -> Iterator[core.Metric]:
    backlog = workers.count_backlog()
    yield _make_gauge("runs_due", "Runs that are due and that no worker has.", backlog.due)
    yield _make_gauge(
        "runs_overdue", "Runs that have been due for more than a minute.", backlog.overdue
    )
    yield _make_gauge("runs_queued", "Runs that have not begun.", backlog.queued)
    suspects = core.GaugeMetricFamily(
        "signoff_runs_suspected",
        "Runs that lost two workers in a row, which wait to be tried or are being tried.",
        labels=("state",),
    )
    totals = count_suspects()
    suspects.add_metric(("waiting",), totals.waiting)
    suspects.add_metric(("tried",), totals.tried)
    yield suspects
    yield _make_gauge(
        "run_queued_age_seconds", "Age of the oldest run that has not begun.", backlog.queued_age
    )
    yield _make_gauge(
        "signal_age_seconds",
        "Age of the oldest signal that no run has received.",
        backlog.signal_age,
    )
    yield _make_gauge("objects", "Large results in the object store.", backlog.objects)
    yield _make_gauge("object_bytes", "Their bytes.", backlog.object_bytes)
    yield _make_gauge(
        "objects_dropped", "Objects that wait for their deletion.", backlog.dropped_objects
    )
    yield core.CounterMetricFamily(
        "signoff_lease_losses", "Runs that a worker lost.", value=backlog.lease_losses
    )


def _measure_usage() -> Iterator[core.Metric]:
    """Count the usage of this day (UTC): the counters begin again with each day, as after a restart."""
    cost = core.CounterMetricFamily(
        "signoff_cost_usd", "Cost of model replies of this day (UTC).", labels=("agent", "model")
    )
    replies = core.CounterMetricFamily(
        "signoff_replies", "Model replies of this day (UTC).", labels=("agent", "model")
    )
    today = datetime.now(UTC).date()
    for row in run_figures.read_day(today):
        cost.add_metric((row.agent, row.model), row.micros / MICROS)
        replies.add_metric((row.agent, row.model), row.replies)
    yield from (cost, replies)


def _make_gauge(name: str, text: str, value: float) -> core.Metric:
    return core.GaugeMetricFamily(f"signoff_{name}", text, value=value)
