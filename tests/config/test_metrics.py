"""The text of `/metrics` and its readers, and that the dashboard and the alert rules name only metrics that it has."""

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import promql_parser
import pytest
import yaml
from django.db import connection, transaction
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from pytest_django import Settings

from approvals.models import Approval
from config.env.environment import ROOT
from runtime.core.run.events import ModelFailed, RetryScheduled
from runtime.models import Run, Signal, SweeperLoop, WorkerProcess
from runtime.store.steps import Measures
from runtime.store.workers import accumulate_buckets, estimate_quantile
from tests.support.office import Office

TOKEN = "a-token-for-prometheus"
FAILED = RetryScheduled(frame="0", call=None, attempt=1, cause="error", error="no")
EVENTS = (FAILED, RetryScheduled(frame="0", call="c1.0", attempt=1, cause="lost", error="no"),
          ModelFailed(frame="0", error="no"))  # fmt: skip


def families(client: Client | None = None) -> dict[str, Metric]:
    answer = (client or Client()).get("/metrics")
    assert answer.status_code == 200
    return {one.name: one for one in text_string_to_metric_families(answer.content.decode())}


def value(found: dict[str, Metric], name: str, **labels: str) -> float:
    (sample,) = (
        one
        for family in found.values()
        for one in family.samples
        if one.name == f"signoff_{name}" and labels.items() <= one.labels.items()
    )
    return sample.value


@pytest.mark.django_db
def test_a_worker_s_counts_are_shown_by_worker() -> None:
    measures = Measures()
    for seconds in (0.0005, 0.004, 0.004, 90.0):
        measures.add_step(seconds, EVENTS if seconds == 90.0 else ())
    beat_at = timezone.now() + timedelta(hours=1)  # it lives however slow the test is
    for process, before in ((1, timedelta(0)), (2, timedelta(hours=1, minutes=6))):
        WorkerProcess.objects.create(
            id=uuid4(), host='a"\n', process=process, measures=json.loads(measures.stored()),
            beat_at=beat_at - before,
        )  # fmt: skip
    found = families()
    assert value(found, "step_commit_seconds_count") == 4
    assert value(found, "step_commit_seconds_bucket", le="0.005", process="1") == 3
    assert value(found, "step_commit_seconds_bucket", le="60.0", host='a"\n') == 3
    assert value(found, "retries_total", call="model", cause="error") == 1
    assert value(found, "retries_total", call="tool", cause="lost") == 1
    assert value(found, "model_errors_total") == 2
    age = value(found, "worker_beat_age_seconds", process="1")
    assert -timedelta(hours=1).total_seconds() <= age <= (timezone.now() - beat_at).total_seconds()
    assert value(found, "workers_live") == 1


def test_the_time_to_commit_is_estimated_within_its_bucket() -> None:
    measures = Measures()
    assert (
        estimate_quantile({}, 0.5) is estimate_quantile(json.loads(measures.stored()), 0.5) is None
    )
    for seconds in (0.0005, 0.004, 0.004, 0.004):
        measures.add_step(seconds, ())
    stored = json.loads(measures.stored())
    assert accumulate_buckets(stored)[-1] == ("+Inf", 4)
    assert estimate_quantile(stored, 0.25) == pytest.approx(0.001)
    assert estimate_quantile(stored, 0.625) == pytest.approx(0.0035)
    measures.add_step(1000.0, ())
    assert estimate_quantile(json.loads(measures.stored()), 0.99) == 60.0


def test_what_waits_is_counted_in_a_fixed_number_of_queries(office: Office) -> None:
    before = families()
    assert value(before, "signal_age_seconds") == value(before, "run_queued_age_seconds") == 0
    runs = [office.start() for _ in range(4)]
    old = timezone.now() - timedelta(days=2)
    Approval.objects.filter(run__in=runs[:2]).update(created_at=old, expires_at=old)
    Run.objects.filter(id=runs[2]).update(status="queued", due_at=old, created_at=old)
    Run.objects.filter(id=runs[3]).update(due_at=timezone.now())
    Signal.objects.create(run_id=runs[3], kind="message", body="{}", effective_at=old)
    SweeperLoop.objects.create(name="objects", done_at=old, took=2.5)
    with CaptureQueriesContext(connection) as made:
        found = families()
    assert len(made) <= 8
    assert value(found, "messages_unsent") == value(found, "message_age_seconds") == 0
    assert value(found, "requests_pending", age="7d") == value(found, "requests_overdue") == 2
    assert value(found, "runs_due") == 2
    assert value(found, "runs_overdue") == value(found, "runs_queued") == 1
    days = timedelta(days=2).total_seconds()
    assert value(found, "run_queued_age_seconds") == pytest.approx(days, abs=60)
    assert value(found, "signal_age_seconds") == pytest.approx(days, abs=60)
    assert value(found, "sweep_seconds", loop="objects") == 2.5
    assert value(found, "sweep_age_seconds", loop="objects") > value(
        found, "sweep_late_after_seconds", loop="objects"
    )


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("said", "status"),
    [
        ({}, 200),
        ({"REMOTE_ADDR": "::1"}, 200),
        ({"REMOTE_ADDR": "10.0.0.8"}, 403),
        ({"REMOTE_ADDR": ""}, 403),
        ({"HTTP_X_FORWARDED_FOR": "127.0.0.1"}, 403),
        ({"HTTP_FORWARDED": "for=127.0.0.1"}, 403),
        ({"REMOTE_ADDR": "10.0.0.8", "HTTP_AUTHORIZATION": "Bearer wrong"}, 401),
        ({"REMOTE_ADDR": "10.0.0.8", "HTTP_AUTHORIZATION": TOKEN}, 401),
        ({"REMOTE_ADDR": "10.0.0.8", "HTTP_AUTHORIZATION": "Bearer \u00e9"}, 401),
        ({"REMOTE_ADDR": "10.0.0.8", "HTTP_AUTHORIZATION": f"Bearer {TOKEN}"}, 200),
    ],
)
def test_only_this_machine_or_a_token_reads_them(
    said: dict[str, Any], status: int, settings: Settings
) -> None:
    settings.SIGNOFF_METRICS_TOKEN = TOKEN
    answer = Client().get("/metrics", **said)
    assert answer.status_code == status
    assert (b"signoff_" in answer.content) is (status == 200)
    assert ("WWW-Authenticate" in answer.headers) is (status == 401)


@pytest.mark.django_db
def test_a_proxy_needs_the_token_and_no_token_opens_nothing(settings: Settings) -> None:
    settings.SIGNOFF_METRICS_TOKEN = ""
    settings.BEHIND_PROXY = True
    assert Client().get("/metrics", HTTP_AUTHORIZATION="Bearer ").status_code == 401
    assert Client().get("/metrics").status_code == 403
    assert Client().post("/metrics").status_code == 405


@pytest.mark.django_db
def test_a_missing_migration_is_said() -> None:
    with transaction.atomic():
        with connection.cursor() as cursor:
            cursor.execute("ALTER TABLE runtime_sweeperloop RENAME TO elsewhere")
        answer = Client().get("/metrics")
        transaction.set_rollback(True)
    assert (answer.status_code, answer.content[:8]) == (503, b"Postgres")


def _rules() -> list[dict[str, Any]]:
    rules = yaml.safe_load((ROOT / "docs/monitoring/alerts.yaml").read_text())
    assert list(rules) == ["groups"]
    assert all(set(group) == {"name", "rules"} for group in rules["groups"])
    return [rule for group in rules["groups"] for rule in group["rules"]]


def _panels() -> list[dict[str, Any]]:
    return list(json.loads((ROOT / "docs/monitoring/grafana.json").read_text())["panels"])


def _expressions() -> Iterator[str]:
    for rule in _rules():
        yield rule["expr"]
    for panel in _panels():
        for target in panel["targets"]:
            yield target["expr"].replace("$__rate_interval", "5m")


@pytest.mark.django_db
def test_the_rules_and_the_dashboard_ask_for_what_there_is() -> None:
    """A parser of PromQL reads each expression: it refuses what Prometheus would."""
    there = set(families())
    asked = set()
    for expression in _expressions():
        promql_parser.parse(expression)
        asked |= set(re.findall(r"signoff_\w+", expression))
    asked = {re.sub(r"_(total|bucket|count|sum)$", "", name) for name in asked}
    assert asked <= there
    assert there - asked == {"signoff_worker_beat_age_seconds"}  # for those who look closer


def test_each_rule_has_what_prometheus_and_a_person_need() -> None:
    rules = _rules()
    names = [rule["alert"] for rule in rules]
    assert len(names) == len(set(names))
    for rule in rules:
        assert set(rule) - {"for"} == {"alert", "expr", "labels", "annotations"}
        assert rule["labels"]["severity"] in {"warning", "critical"}
        assert set(rule["annotations"]) == {"summary", "description"}
        promql_parser.parse_duration(rule.get("for", "1m"))
    assert all(panel["title"] and panel["gridPos"]["w"] for panel in _panels())
