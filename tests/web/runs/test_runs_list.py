"""The list of runs as a tool: search by what a row shows, days of the reader's zone, a file, saved views, retries."""

import csv
import json
from datetime import UTC, datetime
from io import StringIO
from threading import BoundedSemaphore
from typing import Any

import pytest
from django.test import Client

from runtime.models import Run
from runtime.web import downloads
from runtime.web.pages import runs as runs_page
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, queries_at_most, shows, text, text_of
from tests.support.seeds import PASSWORD


def _file(client: Client, query: str) -> list[list[str]]:
    answer: Any = client.get(f"/runs.csv{query}")
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith("attachment")
    return list(csv.reader(StringIO(b"".join(answer.streaming_content).decode())))


def test_what_a_row_shows_is_found(ada: Client, office: Office) -> None:
    run = office.start(key="HR-77")
    Run.objects.filter(id=run).update(input=json.dumps({**NEWCOMER, "username": "jürgen"}))
    office.start()
    for query in ("j%C3%BCrgen", "JÜRG", str(run), "HR-77 ada", "by:ada key:hr-77"):
        page = text(ada, f"/runs/?q={query}")
        assert page.count('class="row"') == 1, query
        assert str(run) in page
    page = text_of(ada.get("/runs/?q=garbage:xyz"), 422)
    has(page, "has no filter garbage:", "known are agent:, by:, key:, id:", 'aria-invalid="true"')
    has(shows(ada, "/runs/"), "<code>agent:</code>", 'data-term="by:ada"', 'data-term="key:HR-77"')


def test_days_are_those_of_the_reader(ada: Client, office: Office) -> None:
    run = office.start()
    Run.objects.filter(id=run).update(created_at=datetime(2026, 11, 20, 2, tzinfo=UTC))
    day, before = "?from=2026-11-20&to=2026-11-20", "?from=2026-11-19&to=2026-11-19"
    ada.cookies["signoff_zone"] = "America/New_York"
    assert [str(run) in text(ada, f"/runs/{query}") for query in (day, before)] == [False, True]
    assert [len(_file(ada, query)) for query in (day, before)] == [1, 2]
    shows(ada, run, "2026-11-19 21:00:00 EST")
    ada.post("/account/time/", {"zone": "Europe/Berlin", "clock": "12"})
    assert [str(run) in text(ada, f"/runs/{query}") for query in (day, before)] == [True, False]
    shows(ada, run, "2026-11-20 03:00:00 AM CET", 'data-zone="Europe/Berlin"')
    again = Client()
    again.post("/login/", {"username": "ada", "password": PASSWORD})
    shows(again, run, "2026-11-20 03:00:00 AM CET")
    for form, field in (({"zone": "Mars", "clock": "24"}, "zone"), ({"clock": "13"}, "clock")):
        has(text_of(ada.post("/account/time/", form), 422), f"time-{field}_error")
    shows(ada, "/runs/?to=9999-12-31", str(run))
    has(text_of(ada.get("/runs/?from=tuesday"), 422), "must be a day such as")
    assert ada.get("/runs.csv?from=tuesday").status_code == 422


def test_the_list_is_a_file(
    ada: Client,
    cyril: Client,
    office: Office,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(runs_page, "DOWNLOADED_ROWS", 2)
    keys = ["=cmd()", "a", "b"]
    runs = [str(office.start(key=key)) for key in keys]
    head, *rows = _file(ada, "")
    assert head == list(runs_page.COLUMNS)
    assert [row[0] for row in rows] == runs[::-1]
    assert rows[-1][2] == "'=cmd()"
    assert [row[0] for row in _file(ada, "?q=key:b&order=oldest")] == ["id", runs[2]]
    logged = 'ada exports the list of runs: {"order": "oldest", "words": "key:b"}'
    assert logged in caplog.messages
    assert len(_file(cyril, "")) == 1
    shows(ada, "/runs/?q=key:b", '/runs.csv?q=key%3Ab&amp;"')
    monkeypatch.setattr(downloads, "_room", BoundedSemaphore(1))
    first: Any = ada.get("/runs.csv")
    assert ada.get("/runs.csv").status_code == 503
    first.close()
    assert len(_file(ada, "")) == 4


def test_a_list_of_runs_is_saved_as_a_view(ada: Client, bea: Client, office: Office) -> None:
    place = {"tab": "failed", "q": "by:ada"}
    saved = ada.post("/inbox/views/add/", {"page": "runs", "name": "My failures", **place})
    assert saved["Location"] == "/runs/?tab=failed&q=by%3Aada"
    page = shows(ada, saved["Location"], "My failures", "Delete the view")
    with queries_at_most(9):
        text(ada, "/runs/")
    for client, where in ((ada, "/inbox/"), (bea, "/runs/")):
        shows(client, where, hides=["My failures"])
    again = ada.post("/inbox/views/add/", {"name": "My failures", "q": "risk:high"})
    assert again["Location"].startswith("/inbox/?q=risk%3Ahigh&saving=")
    view = page.split("/inbox/views/")[1].split("/delete/")[0]
    assert ada.post(f"/inbox/views/{view}/delete/", {"page": "runs"})["Location"] == "/runs/"
    shows(ada, "/runs/", hides=["My failures"])


def test_a_failed_run_is_tried_again_from_the_list(
    ada: Client, bea: Client, admin: Client, office: Office
) -> None:
    office.start(args=NEWCOMER)
    retry = f"/runs/{office.failed()}/retry/"
    for client in (ada, admin):
        shows(client, "/runs/?tab=failed", retry, "Try again…")
    shows(bea, "/runs/?tab=failed", hides=[retry])
