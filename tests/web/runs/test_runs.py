"""The list of runs, and the page of one run."""

import csv
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from io import StringIO
from threading import BoundedSemaphore
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval
from runtime.core.run import retries
from runtime.models import Gate, JournalEntry, Run
from runtime.ports.effects import ModelFailure, Outcome, ToolFailure
from runtime.web import downloads
from runtime.web.pages import runs as runs_page
from tests.support.api_client import Caller
from tests.support.fake_ports import FakeTool, say
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, in_order, queries_at_most, shows, text, text_of
from tests.support.seeds import PASSWORD, TOOL
from tests.support.seeds import published as published_agent

NO_MATCH = "No matching runs"


def _rows(client: Client, query: str) -> int:
    return text(client, f"/runs/{query}").count('class="row"')


def test_the_list_names_the_wait_of_each_run(bea: Client, cyril: Client, office: Office) -> None:
    run = office.start(key="newhire-2026")
    waits = "Waits for a person: <bdi>Set the privileges of newhire to 3</bdi>"
    shows(bea, "/runs/", f"/runs/{run}/", "newhire-2026", "Waiting for a person", waits)
    shows(cyril, "/runs/", "You have no rights yet", hides=[str(run)])
    now = timezone.now()
    Run.objects.filter(id=run).update(created_at=now - timedelta(hours=3))
    Gate.objects.filter(run=run).update(opened_at=now - timedelta(minutes=2))
    page = shows(bea, "/runs/", "3 h ago", hides=["for 3 h"])
    assert re.search(r"for 2 min 0\d s", page)
    for _ in range(3):
        office.approve(office.start())
    with queries_at_most(8):
        text(bea, "/runs/")


def test_a_row_is_titled_by_its_input_and_says_its_answer_and_failed_calls(
    ada: Client, office: Office
) -> None:
    done = office.start()
    office.approve(done)
    given = json.dumps({"full_name": "Eve <Intern>", "tags": [1], "level": 90, "note": "x" * 90})
    Run.objects.filter(id=done).update(input=given, output=json.dumps("Not done. " * 40))
    title = f"<bdi>Eve &lt;Intern&gt; · 90 · {'x' * 59}…</bdi>"
    shows(ada, "/runs/", title, "Not done. Not done.", hides=["failed</span>", "Not done. " * 20])
    office.effects.tools["send_welcome_mail"] = FakeTool(
        body=lambda _: ToolFailure(error="no route")
    )
    office.approve(failed := office.start())
    shows(ada, "/runs/?tab=finished", "1 call failed")
    shows(ada, f"/runs/{failed}/", 'class="note warn"', '<a href="?only=failed">1 call failed</a>')
    shows(ada, f"/runs/{done}/", 'class="note ok"', hides=["call failed"])
    Run.objects.filter(id=done).update(input=json.dumps({"text": "x" * 3_000}))
    shows(ada, "/runs/", f'href="/runs/{done}/"><bdi>Hr onboarding</bdi>')


@pytest.mark.parametrize("query", ["", "tab=people&q=hr"])
def test_the_list_has_pages(ada: Client, suspended: UUID, query: str) -> None:
    row = Run.objects.get(id=suspended)
    for _ in range(50):
        row.id = uuid4()
        row.save(force_insert=True)
    escaped = query.replace("&", "&amp;")
    kept = f"{escaped}&amp;" if query else ""
    first = shows(ada, f"/runs/?{query}", f'href="?{kept}cursor=')
    cursor = first.split(f'href="?{kept}cursor=')[1].split('"')[0]
    assert (first.count('class="row"'), _rows(ada, f"?{query}&cursor={cursor}")) == (50, 1)
    part = text(ada, f"/runs/?{query}", live=True)
    assert part.count('class="row"') == 50
    assert part.strip().startswith('<div id="live" data-live="runs"')
    source = f'data-src="/runs/?{escaped}"' if query else 'data-src="/runs/"'
    has(part, source, hides=['<nav class="tabs"'])


def test_a_run_shows_its_tree(ada: Client, admin: Client, office: Office, suspended: UUID) -> None:
    request = office.request(suspended)
    page = shows(ada, suspended, f"<h2><bdi>{request.sentence}</bdi>", f"/a/{request.id}/")
    rows = page[page.index('<ul class="wf"') : page.index('<ul class="legend"')]
    names = ("Hr onboarding", "Account agent", "Create account", "Set privileges")
    in_order(rows, *(f"<bdi>{name}</bdi></a>" for name in names))
    has(rows, "waits for a person to decide")
    links = [f"/api/v1/runs/{suspended}/{link}" for link in ("journal", "continuation")]
    has(page, hides=links)
    shows(admin, suspended, *links)
    office.approve(suspended)
    shows(ada, suspended, "Finished", '<span class="raw">New Hire is on board.</span>')


def test_a_run_says_how_it_stands(ada: Client, office: Office) -> None:
    shows(ada, office.start(advanced=False), "Queued", "<bdi>hr_onboarding</bdi>")
    denied = office.start()
    office.deny(denied, "Too early.")
    shows(ada, denied, "denied by <bdi>bea</bdi>", "Too early.")
    reason = "the model is <gone>" + "x" * 1000
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(error=reason)
    shows(ada, office.start(), "The run failed", "the model is &lt;gone&gt;")
    shows(ada, "/runs/?tab=failed", "the model is &lt;gone&gt;", hides=["x" * 201])


def test_a_quarantined_run_says_why_and_alarms_admins(
    ada: Client, bea: Client, admin: Client, office: Office, suspended: UUID
) -> None:
    office.start()
    shows(admin, "/runs/", hides=['role="alert"'])
    JournalEntry.objects.filter(run_id=suspended, position=3).update(body='{"not')
    Run.objects.filter(id=suspended).update(status="quarantined", reason="entry 3 is not its own")
    why = ("Quarantined: an admin must check it", "entry 3 is not its own")
    unread = "Part of the journal cannot be read"
    shows(ada, suspended, *why, unread, "<bdi>hr_onboarding</bdi>")
    for path in ("/inbox/", "/runs/"):
        shows(admin, path, "1 run stopped: stored data does not verify")
        shows(bea, path, hides=["1 run stopped"])
    assert shows(admin, "/runs/?status=quarantined", str(suspended)).count('class="row"') == 1


@pytest.mark.parametrize("damage", ["unreadable", "refused"])
def test_every_page_of_a_damaged_run_opens_and_says_what_it_leaves_out(
    admin: Client, bea: Client, office: Office, suspended: UUID, damage: str
) -> None:
    rows = JournalEntry.objects.filter(run_id=suspended).order_by("position")
    first = rows.values("body", "packed")[0]
    approval, other = office.request(suspended), office.start()
    paths = ["", "?step=0", "?tab=state", "fork/2/", "cancel/", f"at/{rows.count()}/"]
    for position in (3, rows.count()):
        row = rows.filter(position=position)
        before = row.values("body", "packed")[0]
        row.update(**({"body": '{"not', "packed": None} if damage == "unreadable" else first))
        listed = f"from the entries before them: entry {position}."
        shows(admin, f"/runs/{suspended}/", listed)
        shows(bea, f"/a/{approval.id}/", listed, f"cannot be read (entry {position})")
        unlisted = f"Entry {position} of the journal cannot be read"
        for page in ("cancel/", "fork/2/"):
            shows(admin, f"/runs/{suspended}/{page}", unlisted, hides=["Nothing was changed"])
        for path in paths:
            text(admin, f"/runs/{suspended}/{path}")
        text(admin, f"/runs/{other}/compare/{suspended}/")
        row.update(**before)


def test_a_model_call_page_shows_the_model_and_its_reply(ada: Client, office: Office) -> None:
    tried = ModelFailure(error="request", model="openai:a", fallback="openai:b")
    outcomes: list[Outcome] = [
        replace(tried, error="cut", retryable=True, retry_after=0.0, partial="ha<lf"),
        tried,
        replace(say("done"), model="openai:b"),
    ]
    office.effects.agents["hr_onboarding"] = lambda request: outcomes.pop(0)
    partial = 'as evidence only:</span><span class="raw muted">ha&lt;lf</span>'
    path = f"/runs/{office.start()}/?step=0/m1"
    page = shows(ada, path, "no reply, the next model is called", partial)
    counts = [page.count(f"model <bdi>openai:{name}</bdi>") for name in "ab"]
    assert counts == [2, 1]


# Narrowing the list down


def test_tabs_hold_the_runs_of_their_statuses(ada: Client, office: Office, suspended: UUID) -> None:
    finished = office.start()
    office.approve(finished)
    queued = office.start(advanced=False)
    for tab, label, run in (
        ("people", "Waiting for people", suspended),
        ("finished", "Finished", finished),
        ("working", "Working", queued),
    ):
        current = f'href="?tab={tab}" aria-current="page">{label}</a>'
        page = shows(ada, f"/runs/?tab={tab}", f"/runs/{run}/", current)
        assert page.count('class="row"') == 1
    for query in ("tab=failed", "status=cancelled"):
        shows(ada, f"/runs/?{query}", NO_MATCH)
    for query in ("cursor=nonsense", "status=nonsense", "tab=nonsense"):
        text(ada, f"/runs/?{query}", 404)


def test_a_search_finds_by_agent_key_person_and_id(
    ada: Client, cyril: Client, office: Office, suspended: UUID
) -> None:
    office.start(key="HR-77")
    searches = {"hr-77": 1, str(suspended): 1, "ONBOARD": 2, "ada": 2}
    searches |= {"onboard hr-77 ada": 1, "onboard stranger": 0, "by:ada key:hr-77": 1, "by:hr": 0}
    searches |= {str(suspended)[:33]: 1, f"id:{suspended}": 1, "id:x": 0, '"by:ada"': 0}
    assert {text: _rows(ada, f"?q={text}") for text in searches} == searches
    today, order = timezone.now().date(), "order=oldest"
    found = {f"from={today}": 2, f"to={today}": 2, f"to={today - timedelta(days=1)}": 0}
    assert {query: _rows(ada, f"?{query}") for query in found} == found
    page = text(ada, f"/runs/?{order}", live=True)
    first, last = (page.index(mark) for mark in (str(suspended), "HR-77"))
    assert first < last
    shows(ada, "/runs/?from=soon", "The day “from” must be a day such as", status=422)
    for words in ("%25", "_x_"):
        shows(ada, f"/runs/?q={words}", NO_MATCH)
    kept = ('value="stranger"', 'href="?tab=people&amp;q=stranger"')
    chosen = f"/runs/compare/?run={suspended}&run="
    assert ada.get(f"{chosen}{suspended}", follow=True).redirect_chain == [("/runs/", 302)]
    shows(ada, "/runs/?q=stranger", NO_MATCH, *kept)
    for words in ("ada", str(suspended)):  # he may read neither
        shows(cyril, f"/runs/?q={words}", NO_MATCH)
    shows(ada, "/runs/?q=garbage:xyz", "has no filter garbage:", status=422)
    shows(ada, "/runs/?q=ended:9999-12-31", "must have hours or days", status=422)
    shows(ada, "/inbox/?q=garbage:xyz", "has no filter garbage: (known are risk:", status=422)
    for q, why in (("x" * 201, "at most 200 characters"), ("a%00b", "not text")):
        shows(ada, f"/runs/?q={q}", why, q.partition("%")[0], status=422)


# A provider that does not answer

SAID = "openai:a is in trouble (status 503): <the provider>"
WROTE = "no capacity <b>in eu-1</b> until noon " + "x" * 3_000
SHOWN = "no capacity &lt;b&gt;in eu-1&lt;/b&gt; until noon"


def test_an_outage_is_told_and_only_admins_read_the_providers_text(
    office: Office,
    ada: Client,
    admin: Client,
    ada_api: Caller,
    admin_api: Caller,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first round of calls ends at once. A run that waits for a person waits for no provider."""
    fault = ModelFailure(error=SAID, retryable=True, model="openai:a", provider_text=WROTE)
    office.effects.agents["hr_onboarding"] = lambda request: fault
    monkeypatch.setattr(retries, "_is_worth_retry", lambda policy, cause: False)
    monkeypatch.setattr(retries, "MIN_ROUND_SECONDS", 200.0)
    run, why = office.start(), "(status 503): &lt;the provider&gt;"
    shows(ada, run, "Waits for the provider of its model", why, hides=["no capacity"])
    shows(ada, "/runs/", "waits for the provider, next try", why)
    assert shows(admin, run, "x" * 1_900, hides=["x" * 2_000]).count(SHOWN) == 1
    shows(admin, f"/runs/{run}/?step=0/m1", SHOWN)
    for tab in ("?step=0/m1", "?tab=transcript"):
        shows(ada, f"/runs/{run}/{tab}", hides=["no capacity"])
    for api, reads in ((admin_api, True), (ada_api, False)):
        assert ("no capacity" in api.get(f"/runs/{run}/journal").content.decode()) is reads
    for found in (ada_api.get(f"/runs/{run}").json(), ada_api.get("/runs").json()["items"][0]):
        assert found["status"] == "waiting"
        assert found["status_text"].endswith(SAID)
        assert found["next_try_at"] > timezone.now().isoformat()
    settings.SIGNOFF_OUTAGE_SECONDS = 0.0
    run = office.start()
    found = ada_api.get(f"/runs/{run}").json()
    assert [gate["kind"] for gate in found["gates"]] == ["hold"]
    assert (found["status_text"], found["next_try_at"]) == (None, None)
    shows(ada, run, "No reply comes from its model")
    for place in (run, Approval.objects.get(run=run)):
        assert shows(admin, place).count(SHOWN) == 1
        shows(ada, place, hides=["no capacity"])


# The picture


def test_the_picture_of_the_agent_says_where_the_run_stands(
    ada: Client, office: Office, suspended: UUID
) -> None:
    page = shows(ada, suspended, "1 of 2 tools done, 1 waiting.")
    gated = office.request(suspended)
    in_order(
        page[page.index('class="picture"') :],
        'class="node agent waiting"',
        "<bdi>Hr onboarding<",
        'aria-label="Agents that Hr onboarding calls"',
        f'href="?step={gated.frame}#step"><bdi>Account agent<',
        'aria-label="Tools of Account agent"',
        'class="node done"',
        'class="node waiting"',
        f'href="?step={gated.frame}/{gated.call}#step"><bdi>Set privileges<',
    )
    published_agent("hr_onboarding", input_schema={})
    tools = [{**TOOL, "name": "write_report", "question": True}]
    published_agent("account_agent", input_schema={}, tools=tools, subagents=["hr_onboarding"])
    page = shows(ada, suspended, "1 of 4 tools done, 1 waiting, 2 not reached.", "a person answers")
    assert page.count(">Hr onboarding</bdi></a>") == 4  # with its row and its agent page
    office.deny(suspended, "No.")
    shows(ada, suspended, "2 of 5 tools done, 1 not done, 2 not reached.")


# The list


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
