"""What runs used, by day: counted once from their journals, and shown on the overview, in lists, files and metrics."""

import csv
import io
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID

import pytest
from django.db.models import F
from django.test import Client

from approvals.decisions.decide import undo
from approvals.models import Approval, DailyDecisions
from approvals.reads import pending_ages
from approvals.web.pages import overview
from runtime.control.interventions import retry
from runtime.models import DailyRuns, DailyUsage, JournalEntry, Run, RunUsage
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.store.pool import Connection
from runtime.upkeep import rollups
from tests.support import seeds
from tests.support.office import BEA, Office
from tests.support.pages import in_order, shows, text

TODAY = f"{datetime.now(UTC):%Y-%m-%d}"


@pytest.fixture
def priced(office: Office) -> Office:
    """An agent whose replies cost 7 millionths of a dollar each."""
    work = office.effects.agents["hr_onboarding"]
    office.effects.agents["hr_onboarding"] = lambda request: replace(
        cast("Any", work(request)),
        usage={"input_tokens": 5, "output_tokens": 2},
        cost=7,
        model="model-a",
    )
    return office


def _roll_up(connection: Connection) -> None:
    rollups.roll_up(connection, threading.Event())
    pending_ages.count()


def _used() -> tuple[int, int, int]:
    """The replies and micros of all runs, and the micros of all days."""
    runs, days = RunUsage.objects.all(), DailyUsage.objects.all()
    return (
        sum(row.replies for row in runs),
        sum(row.micros for row in runs),
        sum(row.micros for row in days),
    )


def test_each_reply_is_counted_once(priced: Office, own: Connection) -> None:
    run = priced.start()
    _roll_up(own)
    first = _used()
    assert first[0] > 0
    assert first == (first[0], 7 * first[0], 7 * first[0])
    _roll_up(own)
    assert _used() == first
    priced.approve(run)
    _roll_up(own)
    replies = _used()[0]
    assert replies > first[0]
    assert _used() == (replies, 7 * replies, 7 * replies)
    (row,) = DailyUsage.objects.all()
    assert (str(row.day), row.agent, row.model, row.requester) == (
        TODAY, "hr_onboarding", "model-a", "ada",
    )  # fmt: skip
    assert (row.input_tokens, row.output_tokens) == (5 * replies, 2 * replies)


def test_a_second_sweeper_counts_nothing_twice(
    priced: Office, own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has read the position of the run, and the first one counts before it does."""
    priced.start()
    count = rollups._count_part

    def overtaken(second: Connection, changed: rollups._ChangedRun, *, after: int) -> bool:
        assert count(own, changed, after=after)
        return count(second, changed, after=after)

    monkeypatch.setattr(rollups, "_count_part", overtaken)
    with pool.open_own() as second:
        assert rollups.count_usage(second, threading.Event()) == 0
    replies = _used()[0]
    assert _used() == (replies, 7 * replies, 7 * replies)


def test_a_round_ends_although_its_runs_go_on(
    priced: Office, own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = {priced.start() for _ in range(3)}
    monkeypatch.setattr(rollups, "RUNS", 2)
    count, counted = rollups._count_part, list[UUID]()

    def busy(connection: Connection, changed: rollups._ChangedRun, *, after: int) -> bool:
        counted.append(changed.run)
        assert len(counted) <= len(runs)
        Run.objects.filter(pk=changed.run).update(position=F("position") + 1)
        return count(connection, changed, after=after)

    monkeypatch.setattr(rollups, "_count_part", busy)
    assert rollups.count_usage(own, threading.Event()) == len(runs)
    assert set(counted) == runs


@pytest.mark.parametrize("model", ["a\0b", "x" * 9_000_000], ids=["NUL", "long"])
def test_a_run_that_cannot_be_counted_stops_no_other(
    priced: Office, own: Connection, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    broken, whole = priced.start(), priced.start()
    read = rollups._read_usage

    def forged(connection: Connection, span: dict[str, Any]) -> rollups._CountedReplies:
        usage = read(connection, span)
        if span["run"] == broken:
            usage.by_day = {(day, model): counts for (day, _), counts in usage.by_day.items()}
        return usage

    monkeypatch.setattr(rollups, "_read_usage", forged)
    assert rollups.count_usage(own, threading.Event()) == 1
    assert [row.run_id for row in RunUsage.objects.all()] == [whole]


def test_entries_of_a_newer_release_are_left_to_its_sweeper(
    priced: Office, own: Connection
) -> None:
    newer, other = priced.start(), priced.start()
    JournalEntry.objects.filter(run_id=newer, position=2).update(
        body='{"schema":99,"events":[{"type":"ModelReplied"}]}', packed=None
    )
    _roll_up(own)
    assert [row.run_id for row in RunUsage.objects.all()] == [other]


def test_a_long_run_is_counted_in_parts(
    priced: Office, own: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rollups, "ENTRIES", 2)
    run = priced.start()
    _roll_up(own)
    assert RunUsage.objects.get().position == Run.objects.get(id=run).position > 2
    assert _used()[1] == _used()[2] > 0


def test_an_entry_that_cannot_be_read_stops_nothing(priced: Office, own: Connection) -> None:
    broken, whole = priced.start(), priced.start()
    own.execute(
        "UPDATE runtime_journalentry SET body = '{\"ModelReplied\"', packed = NULL WHERE run_id = %s",
        (broken,),
    )
    _roll_up(own)
    assert RunUsage.objects.get(pk=broken).replies == 0
    assert RunUsage.objects.get(pk=whole).replies > 0


def test_decisions_and_ends_are_counted_by_day(
    priced: Office, own: Connection, admin: Client
) -> None:
    run, denied = priced.start(), priced.start()
    priced.approve(run)
    priced.deny(denied, "no")
    _move(run, days=1)
    _roll_up(own)
    days = {str(row.day): row for row in DailyDecisions.objects.all()}
    assert [row.verdicts for row in days.values()] == [{"approved": 1}, {"denied": 1}]
    assert all(row.median is not None and row.median == row.p90 for row in days.values())
    assert sum(sum(row.statuses.values()) for row in DailyRuns.objects.all()) == 2


def test_a_day_loses_its_only_decision_when_it_is_undone(
    office: Office, settings: Any, own: Connection
) -> None:
    settings.SIGNOFF_UNDO_SECONDS = 60
    approval = office.request(office.start())
    seeds.decide(approval, BEA)
    _roll_up(own)
    assert DailyDecisions.objects.get().verdicts == {"approved": 1}
    undo(approval_id=approval.id, actor=BEA)
    _roll_up(own)
    day = DailyDecisions.objects.get()
    assert (day.verdicts, day.median, day.p90) == ({}, None, None)


def test_a_day_loses_its_only_ended_run_when_it_is_started_again(
    office: Office, own: Connection
) -> None:
    run = office.failed()
    _roll_up(own)
    assert DailyRuns.objects.get().statuses == {"failed": 1}
    retry(run=run, reason="Again.", actor=Actor(person="ada"))
    _roll_up(own)
    assert DailyRuns.objects.get().statuses == {}


def test_a_day_in_the_future_stops_no_counting(priced: Office, own: Connection) -> None:
    """The clock was wrong once."""
    priced.deny(priced.start(), "no")
    _roll_up(own)
    for table in (DailyRuns, DailyDecisions):
        table.objects.update(day=datetime.now(UTC).date() + timedelta(days=400))
    _roll_up(own)
    assert DailyRuns.objects.filter(day=TODAY).exists()
    assert DailyDecisions.objects.filter(day=TODAY).exists()


def test_each_bar_leads_to_exactly_what_it_counts(
    priced: Office, own: Connection, admin: Client
) -> None:
    run, denied = priced.start(), priced.start()
    priced.approve(run)
    priced.deny(denied, "no")
    _roll_up(own)
    page = shows(
        admin, "/overview/", "Approved, 1", "Denied, 1", "Finished, 2", "Cost a day by agent"
    )
    hour = "T00%3A00Z"
    tomorrow = f"{datetime.now(UTC) + timedelta(days=1):%Y-%m-%d}"
    period = f"since={TODAY}{hour}&amp;until={tomorrow}{hour}"
    for verdict, other in (("approved", "denied"), ("denied", "approved")):
        link = f"/decisions/?{period}&amp;verdict={verdict}"
        assert page.count(f'href="{link}"') == 2  # the bar, and the table
        listed = text(admin, link.replace("&amp;", "&"))
        ids = {
            name: Approval.objects.get(status=name, kind="approval").id for name in (verdict, other)
        }
        assert str(ids[verdict]) in listed
        assert str(ids[other]) not in listed
    runs = f"/runs/?status=completed&amp;q=ended%3A{TODAY}"
    assert page.count(f'href="{runs}"') == 2
    listed = text(admin, runs.replace("&amp;", "&"))
    assert str(run) in listed
    assert str(denied) in listed
    cost = f"/costs/?from={TODAY}&amp;to={TODAY}&amp;agent=hr_onboarding"
    assert page.count(f'href="{cost}"') == 2
    shows(admin, cost.replace("&amp;", "&"), "Cost by model", "model-a", f"{_dollars()}<")


def test_costs_are_added_up_by_agent_model_person_and_day(
    priced: Office,
    own: Connection,
    admin: Client,
    bea: Client,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    priced.start()
    priced.start(requester="bea")
    _roll_up(own)
    for key, name in (("agent", "hr_onboarding"), ("model", "model-a"), ("day", TODAY)):
        shows(admin, f"/costs/?by={key}", name, f"{_dollars()}<")
    shows(admin, "/costs/?by=person", "<bdi>ada</bdi>", "<bdi>bea</bdi>", hides=[f"{_dollars()}<"])
    rows = list(csv.DictReader(io.StringIO(text(admin, "/costs/?by=model&format=csv"))))
    assert [(row["model"], row["cost_usd"]) for row in rows] == [("model-a", _dollars())]
    shows(admin, "/costs/?from=2026-11-09&to=2026-11-01", "from must not be after", status=422)
    shows(admin, "/costs/?from=yesterday", "from must be a day such as", status=422)
    shows(admin, "/costs/?from=2020-01-01&to=2026-01-01", "less than 400 days", status=422)
    shows(admin, "/costs/?from=2020-01-01&to=2020-01-01", "No model has replied")
    shows(admin, "/costs/?agent=%00", "No model has replied")
    text(bea, "/costs/", 404)
    monkeypatch.setattr(overview, "MAX_ROWS", 1)
    shows(admin, "/costs/?by=person", "has 1 more, with less cost", hides=["<bdi>bea</bdi>"])
    assert text(admin, "/costs/?by=person&format=csv").count("\n") == 3


def test_the_costliest_agent_is_the_first(admin: Client) -> None:
    for agent, micros in (("cheap", 3), ("dear", 5_000_000)):
        DailyUsage.objects.create(
            day=TODAY, agent=agent, model="m", requester="ada", replies=1, unpriced=0,
            input_tokens=1, output_tokens=1, micros=micros,
        )  # fmt: skip
    for page in ("/overview/", "/costs/"):
        in_order(text(admin, page).partition("<tbody")[2], ">Dear<", ">Cheap<")


def test_costs_are_in_the_api_the_metrics_and_the_file_of_runs(
    priced: Office, own: Connection, admin: Client
) -> None:
    run, uncounted = priced.start(), None
    _roll_up(own)
    uncounted = priced.start()
    answer = admin.get("/api/v1/usage?by=model").json()
    assert [(item["name"], item["cost_usd"]) for item in answer["items"]] == [
        ("model-a", _dollars())
    ]
    refused = admin.get("/api/v1/usage?since=now")
    assert (refused.status_code, refused.json()["field"]) == (422, "since")
    lines = csv.DictReader(io.StringIO(_file(admin, "/runs.csv")))
    costs_by_run = {row["id"]: row["cost_usd"] for row in lines}
    assert costs_by_run == {str(run): _dollars(), str(uncounted): ""}
    metrics = text(Client(), "/metrics")
    assert (
        f'signoff_cost_usd_total{{agent="hr_onboarding",model="model-a"}} {_micros() / 1e6}'
        in metrics
    )


def test_the_numbers_of_a_picture_are_a_file(
    priced: Office, own: Connection, admin: Client
) -> None:
    priced.approve(priced.start())
    _roll_up(own)
    rows = list(csv.DictReader(io.StringIO(text(admin, "/overview/decisions.csv?days=30"))))
    assert rows == [{"day": TODAY, "Approved": "1"}]
    text(admin, "/overview/nothing.csv", 404)
    text(admin, "/overview/?days=8", 404)


def test_each_age_of_pending_requests_leads_to_exactly_these(office: Office, admin: Client) -> None:
    ages = {
        "newer%3A1h": 0,
        "older%3A1h%20newer%3A24h": 5,
        "older%3A24h%20newer%3A7d": 48,
        "older%3A7d": 200,
    }
    runs = [(query, office.start(), hours) for query, hours in ages.items()]
    for _, run, hours in runs:
        row = Approval.objects.get(run=run)
        Approval.objects.filter(run=run).update(created_at=row.created_at - timedelta(hours=hours))
    page = text(admin, "/overview/")
    for query, run, _ in runs:
        link = f"/inbox/?view=all&amp;q={query}"
        assert f'href="{link}"' in page
        listed = text(admin, link.replace("&amp;", "&"))
        assert [
            other for _, other, _ in runs if str(Approval.objects.get(run=other).id) in listed
        ] == [run]


def _micros() -> int:
    return sum(row.micros for row in DailyUsage.objects.all())


def _dollars() -> str:
    return f"{_micros() / 1e6:.6f}"


def _file(client: Client, path: str) -> str:
    answer: Any = client.get(path)
    return b"".join(answer.streaming_content).decode()


def _move(run: UUID, *, days: int) -> None:
    """Move the decision of a run some days back."""
    back = timedelta(days=days)
    for row in Approval.objects.filter(run=run, decided_at__isnull=False):
        Approval.objects.filter(pk=row.pk).update(
            created_at=row.created_at - back, decided_at=cast("datetime", row.decided_at) - back
        )
