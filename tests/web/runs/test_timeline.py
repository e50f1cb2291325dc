"""The timeline of a run: its rows, its axis, and its page."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connection
from django.db.models import Q
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from runtime.core.call_options import RetryPolicy
from runtime.core.documents.compression import plain_text
from runtime.keyring import sealing
from runtime.models import Gate, Run
from runtime.ports.effects import ModelFailure, Outcome, RateLimited, ToolFailure
from runtime.queries import run_page, runs
from runtime.queries.history import state_at
from runtime.queries.timeline.axis import Period, TimeUse, axis
from runtime.queries.timeline.timeline import Timeline
from tests.support.entries import body
from tests.support.fake_ports import (
    FakeTool,
    ask,
    say,
    turns,
)
from tests.support.office import Office

START = datetime(2026, 11, 21, 22, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _span(use: TimeUse, start: float, end: float) -> Period:
    return Period(use=use, start=_at(start), end=_at(end))


# The scale


def test_the_axis_prefers_work_then_people_then_retries() -> None:
    spans = [_span(TimeUse.PEOPLE, 0, 10), _span(TimeUse.WORK, 2, 4), _span(TimeUse.RETRY, 8, 12)]
    found = axis(spans, _at(0), _at(20))
    assert [(s.use, s.lasted.total_seconds()) for s in found.segments] == [
        (TimeUse.PEOPLE, 2),
        (TimeUse.WORK, 2),
        (TimeUse.PEOPLE, 6),
        (TimeUse.RETRY, 2),
        (TimeUse.IDLE, 8),
    ]
    total = sum((found.spent(use) for use in TimeUse), timedelta())
    assert total == timedelta(seconds=20)


def test_weeks_of_waiting_leave_room_for_the_seconds_of_work() -> None:
    weeks = 3 * 7 * 86_400
    spans = [
        _span(TimeUse.WORK, 0, 2),
        _span(TimeUse.PEOPLE, 2, weeks),
        _span(TimeUse.WORK, weeks, weeks + 4),
    ]
    found = axis(spans, _at(0), _at(weeks + 4))
    first, waiting, last = found.segments
    assert first.width + last.width == pytest.approx(60)
    assert last.width == pytest.approx(2 * first.width)
    assert [segment.shortened for segment in found.segments] == [False, True, False]
    assert found.spent(TimeUse.PEOPLE) == waiting.lasted == timedelta(seconds=weeks - 2)


def test_short_waiting_is_drawn_as_long_as_it_was() -> None:
    found = axis([_span(TimeUse.WORK, 0, 9), _span(TimeUse.PEOPLE, 9, 10)], _at(0), _at(10))
    assert found.at(_at(9)) == pytest.approx(90)
    assert found.shortened == ()
    assert found.at(_at(-5)) == 0
    assert found.at(_at(99)) == pytest.approx(100)


@pytest.mark.parametrize("spans", [[], [_span(TimeUse.WORK, 5, 1)]])
def test_a_scale_of_nothing_is_drawn_all_the_same(spans: Sequence[Period]) -> None:
    found = axis(spans, _at(3), _at(3))
    assert found.segments == ()
    assert found.at(_at(3)) == 0


# The rows


def _rows(run: UUID) -> list[tuple[str, str, int, str]]:
    return [(row.kind, row.name, row.depth, row.label) for row in _timeline(run).rows]


def _timeline(run: UUID) -> Timeline:
    found = runs.run_detail(Q(), run)
    assert found is not None
    return run_page.history(found).timeline


def test_every_step_has_a_row_in_the_order_of_the_tree(office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    assert _rows(suspended) == [
        ("agent", "hr_onboarding", 0, "answered"),
        ("model", "hr_onboarding", 1, "1 tool call"),
        ("agent", "account_agent", 1, "answered"),
        ("model", "account_agent", 2, "1 tool call"),
        ("tool", "create_account", 2, "done"),
        ("model", "account_agent", 2, "1 tool call"),
        ("person", "set_privileges", 2, "approved by"),
        ("tool", "set_privileges", 2, "done"),
        ("model", "account_agent", 2, "answered"),
        ("model", "hr_onboarding", 1, "1 tool call"),
        ("tool", "send_welcome_mail", 1, "done"),
        ("model", "hr_onboarding", 1, "answered"),
    ]


def test_calls_of_one_turn_have_their_own_gates_and_attempts(office: Office) -> None:
    office.ask_twice()
    run = office.start()
    gates = [row for row in _rows(run) if row[0] == "person"]
    assert gates == [("person", "set_privileges", 2, "waits for a person to decide")] * 2


def test_failed_attempts_and_the_waits_between_them_are_rows(office: Office) -> None:
    busy = ToolFailure(error="busy", retryable=True)
    slowly = RetryPolicy(attempts=3, base=600.0, ceiling=600.0)
    office.effects.tools["create_account"] = FakeTool(body=lambda request: busy, retry=slowly)
    rows = _rows(office.start())
    assert rows[-2:] == [
        ("tool", "create_account", 2, "failed, tried again"),
        ("wait", "create_account", 2, "tries again at"),
    ]


def test_a_model_without_a_reply_is_a_row_with_its_error(ada: Client, office: Office) -> None:
    office.effects.agents["hr_onboarding"] = lambda request: ModelFailure(error="gone <b>")
    page = _text(ada, f"/runs/{office.start()}/?step=0/m1")
    assert 'class="k-fail"' in page
    assert page.count("gone &lt;b&gt;") >= 2


def test_waits_for_a_rate_limit_are_one_row(office: Office) -> None:
    now = timezone.now()
    held = RateLimited(model="openai:a", until=now, queue_number=4)
    outcomes: list[Outcome] = [held, held, held, say("done")]
    office.effects.agents["hr_onboarding"] = lambda request: outcomes.pop(0)
    run = office.start()
    assert _rows(run) == [
        ("agent", "hr_onboarding", 0, "answered"),
        ("wait", "hr_onboarding", 1, "waited for the rate limit"),
        ("model", "hr_onboarding", 1, "answered"),
    ]
    assert [request.queue_number for request in office.effects.models] == [0, 4, 4, 4]


def test_a_call_in_doubt_waits_for_people_like_any_other(office: Office) -> None:
    assert _rows(office.in_doubt())[-2:] == [
        ("tool", "send_welcome_mail", 1, "its outcome was lost"),
        (
            "person",
            "send_welcome_mail",
            1,
            "in doubt: waits for a person to resolve it",
        ),
    ]


def test_a_cancelled_run_leaves_nothing_open(office: Office, suspended: UUID) -> None:
    office.cancel(suspended, "enough")
    timeline = _timeline(suspended)
    assert all(row.end is not None for row in timeline.rows)
    (gate,) = timeline.gates
    assert (gate.label, gate.reason) == ("not started: the run was ended first", "enough")


def test_a_persons_time_ends_at_their_decision(office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    gate = Gate.objects.get(run=suspended)
    assert gate.decided_at is not None
    Gate.objects.filter(id=gate.id).update(decided_at=gate.decided_at - timedelta(milliseconds=5))
    (shown,) = _timeline(suspended).gates
    assert shown.end == gate.decided_at - timedelta(milliseconds=5)


def test_a_damaged_journal_still_has_a_timeline(ada: Client, suspended: UUID) -> None:
    for position in (2, 4):
        entry = json.loads(plain_text(body(run_id=suspended, position=position)))
        entry["events"] = [{**event, "frame": "9"} for event in entry["events"]]
        with connection.cursor() as cursor:
            cursor.execute(
                "UPDATE runtime_journalentry SET body = %s WHERE run_id = %s AND position = %s",
                [json.dumps(entry), suspended, position],
            )
    assert "Timeline" in _text(ada, f"/runs/{suspended}/")


# The page


def _text(client: Client, path: str, **headers: str) -> str:
    response = client.get(path, headers=headers)
    assert response.status_code == 200
    return response.content.decode()


def test_bars_are_attributes_with_words_beside_them(ada: Client, suspended: UUID) -> None:
    page = _text(ada, f"/runs/{suspended}/")
    bars = re.findall(
        r'<rect class="k-(\w+)"[^>]* x="([\d.]+)%" y="[\d.]+" width="([\d.]+)%"', page
    )
    assert {kind for kind, _, _ in bars} == {"agent", "model", "tool", "person"}
    assert all(float(x) + float(width) <= 100.01 for _, x, width in bars)
    assert page.count("after the start of the run, ") == len(bars)
    assert 'fill="url(#hatch)"' in page
    assert "style=" not in page


def test_a_step_opens_by_its_address(ada: Client, office: Office, suspended: UUID) -> None:
    page = _text(ada, f"/runs/{suspended}/?step=0.c1.0/c2.0")
    opened = page[page.index('id="step"') :]
    assert "security_level" in opened
    assert "It has no result yet" in opened
    assert f"/a/{office.request(suspended).id}/" in opened
    office.approve(suspended)
    page = _text(ada, f"/runs/{suspended}/?step=0.c1.0/c2.0")
    opened = page[page.index('id="step"') :]
    assert "approved by <b><bdi>bea</bdi></b>" in opened
    assert "Attempt 1: done" in opened
    assert ada.get(f"/runs/{suspended}/?step=0/c9.9").status_code == 404
    assert ada.get(f"/runs/{suspended}/?step=%00").status_code == 404


def test_a_model_call_shows_its_new_messages_and_reply(ada: Client, suspended: UUID) -> None:
    page = _text(ada, f"/runs/{suspended}/?step=0.c1.0/m2")
    opened = page[page.index('id="step"') :]
    assert "result of <bdi>create_account</bdi>" in opened
    assert "requested by <bdi>account_agent</bdi>" in opened


def test_the_transcript_has_decisions_in_their_place(
    ada: Client, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    page = _text(ada, f"/runs/{suspended}/?tab=transcript")
    said = [
        "requested by <bdi>account_agent",
        "decided by <bdi>bea",
        "result of <bdi>set_privileges",
    ]
    places = [page.index(text) for text in said]
    assert places == sorted(places)
    assert page.index("written by <bdi>account_agent") < page.index("result of <bdi>account_agent")


def test_an_open_page_asks_for_the_part_that_changes(ada: Client, suspended: UUID) -> None:
    path = f"/runs/{suspended}/?tab=transcript"
    page = _text(ada, path)
    assert f'data-live="run" data-run="{suspended}" data-src="{path}"' in page
    part = ada.get(path, headers={"HX-Request": "true"})
    assert "HX-Request" in part.headers["Vary"]
    assert part.content.decode().strip().startswith('<div id="live" data-live="run"')
    assert "given by <bdi>ada</bdi>" in part.content.decode()


def test_a_run_that_is_over_asks_for_nothing(ada: Client, office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    part = ada.get(f"/runs/{suspended}/", headers={"HX-Request": "true"}).content.decode()
    assert part.strip().startswith('<div id="live">')
    assert "data-live" not in part


def test_a_page_of_200_rows_takes_as_many_queries_as_a_short_run(
    admin: Client, office: Office, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    calls = [("note", {"number": number}) for number in range(30)]
    office.effects.tools["note"] = FakeTool()
    office.effects.agents["hr_onboarding"] = turns(*[ask(*calls) for _ in range(14)], say("Done."))
    run = office.start()
    with django_assert_max_num_queries(15):
        page = _text(admin, f"/runs/{run}/")
    assert len(re.findall(r'<tr id="r\d+"', page)) == 200
    assert "steps 1 to 200 of 436" in page
    with django_assert_max_num_queries(15):
        page = _text(admin, f"/runs/{run}/?page=3")
    assert len(re.findall(r'<tr id="r\d+"', page)) == 36
    with django_assert_max_num_queries(15):
        page = _text(admin, f"/runs/{run}/?step=0/c9.0")
    assert "steps 201 to 400 of 436" in page
    with django_assert_max_num_queries(15):
        assert "messages 1 to 200" in _text(admin, f"/runs/{run}/?tab=transcript")
    for wrong in ("4", "0", "-1", "x", "9" * 30):
        assert admin.get(f"/runs/{run}/?page={wrong}").status_code == 404


def test_many_gates_take_no_more_queries(
    admin: Client, office: Office, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    calls = [("set_privileges", {"username": f"u{n}", "security_level": 1}) for n in range(20)]
    office.effects.agents["account_agent"] = turns(ask(*calls), say("Ready."))
    run = office.start()
    for tab in ("timeline", "transcript", "state"):
        with django_assert_max_num_queries(18):
            page = _text(admin, f"/runs/{run}/?tab={tab}")
    assert page.count(f"/runs/{run}/at/") == 20


# As it was at a gate


def test_admins_read_the_continuation_as_it_was_at_each_gate(
    admin: Client, office: Office, suspended: UUID
) -> None:
    document = runs.continuation(suspended)
    position = Run.objects.get(id=suspended).position
    office.approve(suspended)
    assert runs.continuation(suspended) is None
    page = _text(admin, f"/runs/{suspended}/?tab=state")
    assert f"/runs/{suspended}/at/{position}/" in page
    past = state_at.state_after(suspended, position)
    assert past is not None
    assert past.document == document
    page = _text(admin, f"/runs/{suspended}/at/{position}/")
    assert "account_agent" in page
    assert "GateOpened" in page


def test_other_people_do_not_read_the_timeline(
    ada: Client, bea: Client, cyril: Client, suspended: UUID
) -> None:
    for client in (ada, bea, cyril):
        assert client.get(f"/runs/{suspended}/at/1/").status_code == 404
        assert client.get(f"/runs/{suspended}/?tab=state").status_code == 404
    assert "Snapshots" not in _text(bea, f"/runs/{suspended}/")


def test_only_entries_that_are_there_have_a_state(admin: Client, suspended: UUID) -> None:
    for position in ("0", "999", "9" * 40):
        assert admin.get(f"/runs/{suspended}/at/{position}/").status_code == 404
    assert admin.get(f"/runs/{uuid4()}/at/1/").status_code == 404
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runtime_journalentry SET body = '{' WHERE run_id = %s AND position = 2",
            [suspended],
        )
    assert "Entry 2 of the journal cannot be read" in _text(admin, f"/runs/{suspended}/at/3/")


def test_a_secret_is_masked_there_as_everywhere(admin: Client, office: Office) -> None:
    secret = sealing.seal("swordfish", sealing.place("set_privileges", "args", "note"))
    token = secret["$secret"].partition(":")[2]
    run = office.start(args={"username": "newhire", "security_level": 3, "note": secret})
    position = Run.objects.get(id=run).position
    for path in (f"at/{position}/", "", "?step=0.c1.0/c2.0", "?tab=transcript"):
        page = _text(admin, f"/runs/{run}/{path}")
        assert token not in page
    assert "••••" in _text(admin, f"/runs/{run}/at/{position}/")


# Texts of agents stay text

HOSTILE = (
    '"><script>alert(1)</script><img src=x hx-get=/ onerror=alert(1)>\u202e[x](http://x.example)'
)


def test_hostile_text_stays_text_in_every_tab(admin: Client, office: Office) -> None:
    level = {"username": HOSTILE, "security_level": 1}
    office.effects.tools[HOSTILE] = FakeTool(body=lambda request: ToolFailure(error=HOSTILE))
    office.effects.agents["account_agent"] = turns(
        ask((HOSTILE, {HOSTILE: HOSTILE}), ("set_privileges", level)), say(HOSTILE)
    )
    run = office.start(key=HOSTILE)
    position = Run.objects.get(id=run).position
    office.approve(run)
    paths = ["", "?tab=transcript", "?tab=state", f"at/{position}/"]
    paths += [f"?step=0.c1.0/{step}" for step in ("c1.0", "c1.1", "m1", "m2")] + ["?step=0.c1.0"]
    for path in paths:
        page = _text(admin, f"/runs/{run}/{path}")
        assert "<script>alert" not in page
        assert "<img" not in page
        assert "\u202e" not in page
        assert "⟦U+202E⟧" in page
