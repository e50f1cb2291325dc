"""The timeline of a run, its state at an entry, and its comparison with another run."""

import json
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import cast
from uuid import UUID, uuid4

import pytest
from django.db.models import Q
from django.test import Client
from django.utils import timezone

from runtime.control.forks import fork
from runtime.core.documents.codec import decode_stored_text
from runtime.core.run.continuation import RunStatus
from runtime.core.run.events import EVENT_TYPES
from runtime.core.run.reducer import Entry
from runtime.core.values.call_options import RetryPolicy
from runtime.models import Gate, JournalEntry, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ModelAnswer, Outcome, RateLimited, ToolFailure, ToolResult
from runtime.reads import comparison, journal, run_page, run_rows
from runtime.reads.comparison import RunComparison
from runtime.reads.entries import EVENTS
from runtime.reads.timeline import MAX_BREAKS, MIN_APART, Period, Timeline, TimeUse, build_axis
from tests.support.api_client import Caller
from tests.support.engine import body
from tests.support.fake_ports import FakeTool, ask, say, turns
from tests.support.office import BEA, Office
from tests.support.pages import has, in_order, queries_at_most, shows, text, text_of
from tests.support.seeds import decide

START = datetime(2026, 11, 21, 22, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def _span(use: TimeUse, start: float, end: float) -> Period:
    return Period(use=use, start=_at(start), end=_at(end))


# The scale


def test_the_axis_prefers_work_then_people_then_retries() -> None:
    spans = [_span(TimeUse.PEOPLE, 0, 10), _span(TimeUse.WORK, 2, 4), _span(TimeUse.RETRY, 8, 12)]
    found = build_axis(spans, _at(0), _at(20))
    uses = [("PEOPLE", 2), ("WORK", 2), ("PEOPLE", 6), ("RETRY", 2), ("IDLE", 8)]
    assert [(one.use.name, one.lasted.total_seconds()) for one in found.segments] == uses


def test_only_long_waiting_is_shortened_and_leaves_room_for_the_seconds_of_work() -> None:
    weeks = 3 * 7 * 86_400
    work = [_span(TimeUse.WORK, 0, 2), _span(TimeUse.WORK, weeks, weeks + 4)]
    found = build_axis([*work, _span(TimeUse.PEOPLE, 2, weeks)], _at(0), _at(weeks + 4))
    first, waiting, last = found.segments
    assert first.width + last.width == pytest.approx(60)
    assert last.width == pytest.approx(2 * first.width)
    assert [segment.shortened for segment in found.segments] == [False, True, False]
    assert found.sum_use(TimeUse.PEOPLE) == waiting.lasted == timedelta(seconds=weeks - 2)
    found = build_axis([_span(TimeUse.WORK, 0, 9), _span(TimeUse.PEOPLE, 9, 10)], _at(0), _at(10))
    assert found.shortened == ()
    assert [round(found.at(_at(at))) for at in (-5, 9, 99)] == [0, 90, 100]
    nothing = build_axis([_span(TimeUse.WORK, 5, 1)], _at(3), _at(3))
    assert (nothing.segments, nothing.at(_at(3))) == ((), 0)


def test_ticks_are_round_apart_and_outside_of_compressed_time() -> None:
    weeks = 3 * 7 * 86_400
    work = [_span(TimeUse.WORK, 0, 6), _span(TimeUse.WORK, weeks, weeks + 4)]
    found = build_axis([*work, _span(TimeUse.PEOPLE, 6, weeks)], _at(0), _at(weeks + 4))
    assert [tick.since.total_seconds() for tick in found.ticks] == [0, weeks + 2]
    assert [one.lasted for one in found.named_breaks] == [timedelta(seconds=weeks - 6)]
    many = build_axis(
        [_span(TimeUse.PEOPLE, n * 60, n * 60 + 59) for n in range(40)], _at(0), _at(2400)
    )
    assert len(many.breaks) == MAX_BREAKS
    assert build_axis([], _at(0), _at(0)).ticks == ()


def test_labels_of_the_axis_never_overlap() -> None:
    pick = random.Random(7)
    for _ in range(200):
        moments = sorted(pick.random() ** 4 * 90_000 for _ in range(pick.randrange(2, 30)))
        uses = pick.choices(list(TimeUse), k=len(moments))
        spans = [_span(use, *pair) for use, pair in zip(uses, pairwise(moments), strict=False)]
        scale = build_axis(spans, _at(0), _at(moments[-1]))
        middles = sorted(
            [float(tick.x.rstrip("%")) for tick in scale.ticks]
            + [segment.center for segment in scale.named_breaks]
        )
        assert all(second - first > MIN_APART - 0.1 for first, second in pairwise(middles))


def test_every_event_has_words() -> None:
    assert EVENTS.keys() == {kind.__name__ for kind in EVENT_TYPES}


def test_an_agent_that_waits_is_not_at_work(office: Office, suspended: UUID) -> None:
    agents = [row[1:] for row in _rows(suspended) if row[0] == "agent"]
    said = "waiting for a person"
    assert agents == [("hr_onboarding", 0, said), ("account_agent", 1, said)]


def test_short_values_of_the_transcript_are_shown_unfolded(ada: Client, office: Office) -> None:
    run = office.start(args={"username": "<New>", "security_level": 3})
    page = shows(ada, f"/runs/{run}/?tab=transcript", "<bdi>security_level</bdi>", "&lt;New&gt;")
    has(page, hides=["Show result", "security_level&quot;:"])
    long = "x" * 400
    office.effects.tools["create_account"] = FakeTool(body=lambda _: ToolResult(value=long))
    shows(ada, f"/runs/{office.start()}/?tab=transcript", "Show result")


def test_a_long_input_is_folded(ada: Client, office: Office) -> None:
    run = office.start()
    shows(ada, run, hides=['id="whole-input"'])
    Run.objects.filter(id=run).update(input=json.dumps({"letter": "x" * 7_500}))
    shows(ada, run, 'id="whole-input"><summary>Show all of it: 7518 characters')


# The rows


def _rows(run: UUID) -> list[tuple[str, str, int, str]]:
    return [(row.kind, row.name, row.depth, row.label) for row in _timeline(run).rows]


def _timeline(run: UUID) -> Timeline:
    found = run_rows.run_detail(Q(), run)
    assert found is not None
    with run_page.open_history(found) as history:
        return history.timeline


def test_every_step_has_a_row_in_the_order_of_the_tree(office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    assert _rows(suspended) == [
        ("agent", "hr_onboarding", 0, "answered"),
        ("model", "hr_onboarding", 1, "calls Account agent"),
        ("agent", "account_agent", 1, "answered"),
        ("model", "account_agent", 2, "calls Create account"),
        ("tool", "create_account", 2, "done"),
        ("model", "account_agent", 2, "calls Set privileges"),
        ("person", "set_privileges", 2, "approved by"),
        ("tool", "set_privileges", 2, "done"),
        ("model", "account_agent", 2, "answered"),
        ("model", "hr_onboarding", 1, "calls Send welcome mail"),
        ("tool", "send_welcome_mail", 1, "done"),
        ("model", "hr_onboarding", 1, "answered"),
    ]
    gate = Gate.objects.get(run=suspended)
    assert gate.decided_at is not None
    Gate.objects.filter(id=gate.id).update(decided_at=gate.decided_at - timedelta(milliseconds=5))
    (shown,) = _timeline(suspended).gates
    assert shown.end == gate.decided_at - timedelta(milliseconds=5)


def test_what_failed_waits_or_was_lost_has_its_rows(office: Office) -> None:
    assert _rows(office.in_doubt())[-2:] == [
        ("tool", "send_welcome_mail", 1, "its outcome was lost"),
        ("person", "send_welcome_mail", 1, "in doubt: waits for a person to resolve it"),
    ]
    office.ask_twice()
    gates = [row for row in _rows(office.start()) if row[0] == "person"]
    assert gates == [("person", "set_privileges", 2, "waits for a person to decide")] * 2
    busy = ToolFailure(error="busy", retryable=True)
    slowly = RetryPolicy(attempts=3, base=600.0, ceiling=600.0)
    office.effects.tools["create_account"] = FakeTool(body=lambda request: busy, retry=slowly)
    office.effects.agents["account_agent"] = turns(ask(("create_account", {})))
    assert _rows(office.start())[-2:] == [
        ("tool", "create_account", 2, "failed, tried again"),
        ("wait", "create_account", 2, "tries again at"),
    ]


def test_waits_for_a_rate_limit_are_one_row(office: Office) -> None:
    held = RateLimited(model="openai:a", until=timezone.now(), queue_number=4)
    outcomes: list[Outcome] = [held, held, held, say("done")]
    office.effects.agents["hr_onboarding"] = lambda request: outcomes.pop(0)
    assert _rows(office.start()) == [
        ("agent", "hr_onboarding", 0, "answered"),
        ("wait", "hr_onboarding", 1, "waited for the rate limit"),
        ("model", "hr_onboarding", 1, "answered"),
    ]
    assert [request.queue_number for request in office.effects.models] == [0, 4, 4, 4]


def test_a_damaged_journal_still_has_a_timeline(ada: Client, suspended: UUID) -> None:
    for position in (2, 4):
        entry = json.loads(decode_stored_text(body(run_id=suspended, position=position)))
        entry["events"] = [{**event, "frame": "9"} for event in entry["events"]]
        rows = JournalEntry.objects.filter(run_id=suspended, position=position)
        rows.update(body=json.dumps(entry))
    shows(ada, suspended, "Timeline")


# The page


def _step(client: Client, run: UUID, step: str) -> str:
    """The open step on the page of a run."""
    return text(client, f"/runs/{run}/?step={step}").partition('id="step"')[2]


def test_a_step_opens_by_its_address(ada: Client, office: Office, suspended: UUID) -> None:
    asked = f"/a/{office.request(suspended).id}/"
    step = _step(ada, suspended, "0.c1.0/c2.0")
    has(step, "security_level", "It has no result yet", asked)
    office.approve(suspended)
    step = _step(ada, suspended, "0.c1.0/c2.0")
    has(step, "approved by <b><bdi>bea</bdi></b>", "Attempt 1: done")
    model = _step(ada, suspended, "0.c1.0/m2")
    has(model, "result of <bdi>Create account</bdi>", "requested by <bdi>Account agent</bdi>")
    for step in ("0/c9.9", "%00"):
        text(ada, f"/runs/{suspended}/?step={step}", 404)
    page = text(ada, f"/runs/{suspended}/?tab=transcript")
    decided = ("decided by <bdi>bea", "result of <bdi>Set privileges")
    in_order(page, "requested by <bdi>Account agent", *decided)
    in_order(page, "written by <bdi>Account agent", "result of <bdi>Account agent")


def test_long_runs_take_as_many_queries_as_short_ones(admin: Client, office: Office) -> None:
    gated = [("set_privileges", {"username": f"u{n}", "security_level": 1}) for n in range(20)]
    office.effects.agents["account_agent"] = turns(ask(*gated), say("Ready."))
    run = office.start()
    for tab in ("timeline", "transcript", "state"):
        with queries_at_most(18):
            page = text(admin, f"/runs/{run}/?tab={tab}")
    assert page.count(f"/runs/{run}/at/") == 20
    replies = [
        ask(*[("note", {"turn": turn, "number": n}) for n in range(30)]) for turn in range(14)
    ]
    office.effects.tools["note"] = FakeTool()
    office.effects.agents["hr_onboarding"] = turns(*replies, say("Done."))
    run = office.start()
    for query, words, rows in (
        ("", "steps 1 to 100 of 436", 100),
        ("page=5", "steps 401 to 436 of 436", 37),  # with the agent above them
        ("step=0/c9.0", "steps 201 to 300 of 436", 101),
        ("tab=transcript", "messages 1 to 200", 0),
    ):
        with queries_at_most(15):
            page = shows(admin, f"/runs/{run}/?{query}", words)
        assert len(page) < 1_000 * (rows or 200) + 60_000
        assert len(re.findall(r'<li id="r\d+"', page)) == rows
    for wrong in ("6", "0", "x", "9" * 30):
        text(admin, f"/runs/{run}/?page={wrong}", 404)


def test_a_long_run_opens_before_its_steps_are_read(
    ada: Client, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = f"/runs/{suspended}/?only=waiting"
    monkeypatch.setattr("runtime.reads.run_page.LONG", 3)
    with monkeypatch.context() as patch:
        patch.setattr(run_page, "open_history", None)  # it is not called
        whole = "?only=waiting&amp;whole=1"
        page = shows(ada, path, f'hx-get="{whole}" hx-trigger="load"', "See it")
    has(page, f'<noscript><a href="{whole}">', hides=['class="map"'])
    for headers in ({}, {"HX-Request": "true"}):
        answer = ada.get(f"{path}&whole=1", headers=headers)
        has(text_of(answer), 'class="map"', 'class="stack write"')
    office.approve(suspended)
    shows(ada, path, "<h2>Answer</h2>", "New Hire is on board.", hides=['class="map"'])
    Run.objects.filter(id=suspended).update(status="failed", reason="The directory is down.")
    shows(ada, path, "<h2>The run failed</h2>", "The directory is down.", hides=['class="map"'])


def test_the_pages_of_a_long_run_read_only_new_entries(
    ada: Client, office: Office, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_page, "LONG", 3)
    texts: list[str] = []
    decode = journal.try_decode_entry

    def count(text: str) -> Entry | None:
        texts.append(text)
        return decode(text)

    monkeypatch.setattr(journal, "try_decode_entry", count)

    def decoded(address: str = "") -> int:
        texts.clear()
        text_of(ada.get(f"/runs/{suspended}/{address}", headers={"HX-Request": "true"}))
        return len(texts)

    entries = Run.objects.get(pk=suspended).position
    assert decoded() == entries
    assert (decoded(), decoded("?step=0.c1.0"), decoded("?tab=transcript")) == (1, 1, 1)
    decide(office.request(suspended), BEA)
    assert "decided" in _rows(suspended)[-1][3]
    office.advance(suspended)
    assert decoded() == 1 + Run.objects.get(pk=suspended).position - entries
    kept = _rows(suspended), _timeline(suspended).axis
    run_page.forget()
    assert decoded() == Run.objects.get(pk=suspended).position
    assert kept == (_rows(suspended), _timeline(suspended).axis)


def test_a_kept_run_is_read_again_when_its_last_entry_is_another_or_a_page_has_it(
    suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_page, "LONG", 3)
    detail = run_rows.run_detail(Q(), suspended)
    assert detail is not None
    with run_page.open_history(detail) as first, run_page.open_history(detail) as second:
        assert first.transcript.roots[0] is not second.transcript.roots[0]
    with run_page.open_history(detail) as third:
        assert third is first
    for parked in (
        replace(detail, status=RunStatus.QUARANTINED),
        replace(detail, history_begins=2),
    ):
        with run_page.open_history(parked) as other:
            assert other.transcript.roots[0] is not first.transcript.roots[0]
    last = JournalEntry.objects.get(run_id=suspended, position=detail.position)
    JournalEntry.objects.filter(pk=last.pk).update(packed=None, body="{}", mac="another")
    with run_page.open_history(detail) as damaged:
        assert damaged.transcript.unreadable == (last.position,)
    with run_page.open_history(detail) as again:
        assert again is not damaged


def test_a_step_opens_beside_the_map(ada: Client, suspended: UUID) -> None:
    path = f"/runs/{suspended}/?step=0.c1.0/c2.0"
    shows(ada, path, 'class="map"', '<section class="pane" id="step" tabindex="-1"')
    shows(ada, suspended, '<section class="pane" id="step" hidden')
    answer = ada.get(path, headers={"HX-Request": "true", "HX-Target": "step"})
    assert "HX-Target" in answer["Vary"]
    assert text_of(answer).startswith('<section class="pane" id="step"')
    has(text_of(answer), "security_level", hides=['class="map"'])


def test_a_step_opens_without_the_rows_of_the_others(
    ada: Client, suspended: UUID, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_pane = {"HX-Request": "true", "HX-Target": "step"}
    for name in ("build_timeline", "build_transcript", "build_map", "compute_budget_usage"):
        monkeypatch.setattr(run_page, name, None)  # none is called
    page = text_of(ada.get(f"/runs/{suspended}/?page=1&step=0.c1.0/c2.0", headers=in_pane))
    has(page, 'href="?page=1#r', "Set privileges")
    closed = text_of(ada.get(f"/runs/{suspended}/?page=1", headers=in_pane))
    assert "hidden" in closed
    assert ada.get(f"/runs/{suspended}/?step=0/c9.9", headers=in_pane).status_code == 404


def test_steps_are_told_apart_filtered_and_searched(ada: Client, office: Office) -> None:
    office.effects.tools["read"] = FakeTool()
    pages = [("read", {"site": "wiki", "page": page}) for page in (6, 7)]
    places = (("a" * 32, "wiki", "z.new"), ("b" * 32, "docs", "z.old"))
    copies = [("copy", {"id": id_, "from": old, "to": new}) for id_, old, new in places]
    long = [("note", {"text": "word " * 20})]
    office.effects.tools["copy"] = FakeTool()
    office.effects.tools["note"] = FakeTool(body=lambda _: ToolFailure(error="full"))
    scripts = turns(ask(*pages), ask(*copies), ask(*long), say("Done."))
    office.effects.agents["hr_onboarding"] = scripts
    run = office.start()
    facts = [row.fact for row in _timeline(run).rows if row.kind == "tool"]
    expected = ["page 6", "page 7", "wiki → z.new", "docs → z.old"]
    assert facts == [*expected, f"{'word ' * 8}…"]
    path = f"/runs/{run}/"
    failed = shows(ada, f"{path}?only=failed", "note", "only=failed&amp;page=1&amp;step=0/c3.0")
    assert re.findall(r'<li id="(r\d+)"', failed) == ["r0", "r8"]
    shows(ada, f"{path}?q=Z.NEW", "z.new", hides=["z.old", ">page 7"])
    shows(ada, f"{path}?only=people&q=x", "No step matches", 'href="?only=people&amp;q=x"')
    text(ada, f"{path}?only=others", 404)


def test_admins_read_the_state_at_each_entry_as_it_was(
    admin: Client, bea: Client, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    run, last = f"/runs/{suspended}", Run.objects.get(id=suspended).position
    at = f"{run}/at/{last}/"
    on = (f'href="{run}/at/{last - 1}/"', f'href="{run}/fork/{last}/"')
    shown = shows(admin, at, "Changes by this entry", "account_agent", *on)
    has(shown, "waits for a person to decide: Hr onboarding › Account agent")
    has(shown.partition('id="moves"')[2], "gated")
    has(shown, "<summary>As JSON</summary>", "<bdi>frames</bdi></dt><dd><details", "2 fields")
    live = admin_api.get(f"{run}/continuation").json()
    office.approve(suspended)
    assert admin_api.get(f"{run}/continuation").status_code == 404
    document = admin_api.get(f"{run}/at/{last}").json()
    assert (document["continuation"], document["unreadable"]) == (live, None)
    assert document["position"] == live["position"] == last
    assert "GateOpened" in document["events"]
    moved = {(move["place"], move["name"], move["part"]) for move in document["moves"]}
    assert {("0.c1.0/c2.0", "set_privileges", "state"), ("", "", "pending")} <= moved
    shows(admin, f"{run}/?tab=state", at)
    text(bea, f"{run}/?tab=state", 404)
    shows(bea, suspended, hides=["State at each stop"])
    for nowhere in (0, 999, 10**30):
        assert admin_api.get(f"{run}/at/{nowhere}").status_code == 404
        text(admin, f"{run}/at/{nowhere}/", 404)
    JournalEntry.objects.filter(run_id=suspended, position=2).update(body="{")
    shows(admin, at, "Entry 2 of the journal cannot be read")
    document = admin_api.get(f"{run}/at/{last}").json()
    assert (document["unreadable"], document["continuation"], document["moves"]) == (2, None, [])


# Two runs


def _compared(left: UUID, right: UUID) -> RunComparison:
    one, other = run_rows.run_detail(Q(), left), run_rows.run_detail(Q(), right)
    assert one is not None
    assert other is not None
    return comparison.compare(one, other)


def test_a_fork_and_its_original_side_by_side(ada: Client, office: Office) -> None:
    run = office.start()
    gated = Run.objects.get(id=run).position
    new = fork(run=run, position=gated, actor=Actor(person="ada"))
    office.advance(new)
    office.approve(run)
    shows(ada, new, f'href="/runs/{run}/compare/{new}/"')
    for left, right, common in ((run, new, (gated, 1)), (new, run, (1, gated))):
        shown = _compared(left, right)
        assert shown.related
        assert (shown.left.common, shown.right.common) == common
        assert shown.steps.equal > 0
        names = [pair.step.name for pair in shown.steps.pairs]
        assert ("set_privileges" in names, "create_account" in names) == (True, False)
        entries = f"Entries 1 to {common[0]}"
        event = "approved by bea: Hr onboarding › Account agent › Set privileges"
        page = f"/runs/{left}/compare/{right}/"
        shows(ada, page, entries, "Send welcome mail", event, hides=["0.c1.0", "frame 0"])


def test_unrelated_runs_are_compared_in_full(ada: Client, office: Office) -> None:
    work = office.effects.agents["hr_onboarding"]
    office.effects.agents["hr_onboarding"] = lambda request: replace(
        cast("ModelAnswer", work(request)), usage={"input_tokens": 5, "output_tokens": 2}, cost=7
    )
    one, two, other = office.start(), office.start(), office.start(requester="bea")
    shown = _compared(one, other)
    assert (shown.left.common, shown.right.common) == (0, 0)
    assert len(shown.left.unshared) == Run.objects.get(id=one).position
    for run in (one, two):
        office.approve(run)
    shown = _compared(one, two)
    assert not shown.related
    assert (shown.steps.pairs, shown.left.unshared, shown.right.unshared) == ((), (), ())
    totals = shown.steps.left
    assert (totals.input, totals.output, totals.micros) == (15, 6, 21)  # of three of six replies
    shows(ada, f"/runs/{one}/compare/{two}/", "None: each agent", "15 in, 6 out", "0.000021 US")
    for left, right in ((one, uuid4()), (uuid4(), one)):
        text(ada, f"/runs/{left}/compare/{right}/", 404)
