"""The history of decisions: its page, its files and the API."""

import csv
import json
from datetime import timedelta
from io import StringIO
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from approvals.models import Approval, ApprovalOutcome
from approvals.reads import history
from approvals.web.pages import history as history_page
from runtime.core.values.enums import EffectClass, GateKind
from runtime.models import JournalEntry
from runtime.ports.access import Actor
from runtime.ports.effects import ToolFailure, ToolResult, Unknown
from runtime.web import downloads
from tests.approvals.policies.office import asked, reviewers
from tests.support import seeds
from tests.support.api_client import Caller
from tests.support.fake_ports import FakeTool
from tests.support.office import BEA, Office, reseal
from tests.support.pages import has, in_order, send, shows, text, text_of

BIG = "x" * 70_000


def test_rows_show_what_became_of_the_calls(bea: Client, bea_api: Caller, office: Office) -> None:
    said_of: dict[str, Any] = {
        "a": ToolFailure(error="no such <person>"),
        "b": Unknown(error="cut off"),
        "c": ToolResult(value=BIG),
    }
    office.effects.tools["set_privileges"] = FakeTool(
        gated=True, body=lambda asked: said_of.get(asked.args["username"], ToolResult(value="set"))
    )
    made = {}
    for name in "abcd":
        made[name] = office.request(office.start(args={"username": name, "security_level": 1}))
        send(bea, made[name], "approve", reason=f"for {name}")
        if name != "d":
            office.advance(made[name].run_id)
    denied = office.request(office.start())
    bea_api.post(
        f"/approvals/{denied.id}/decision",
        {"verdict": "deny", "digest": denied.approval_digest, "reason": "<too much>"},
    )
    doubt = Approval.objects.get(kind=GateKind.IN_DOUBT)
    rows = text(bea, "/decisions/").split('<li class="row"')[1:]
    expected = (
        ("Denied", "through the API", "&lt;too much&gt;"),
        ("Approved", "on the page", "for d"),
        ("Approved", "on the page", ">Done<", f"All {len(BIG) + 2} bytes", "/contents/sha256:"),
        ("Approved", ">In doubt<", "cut off", f'href="/a/{doubt.id}/">Resolve it'),
        ("Approved", ">Failed<", "no such &lt;person&gt;", 'badge danger">Failed'),
    )
    for row, words in zip(rows, expected, strict=True):
        has(row, *words, "<bdi>bea</bdi>", hides=["badge ok" if "Done<" not in str(words) else "!"])
    assert rows[1].count('class="badge') == 1  # no outcome yet
    assert "Failed" in text(bea, "/decisions/?q=outcome:failed")
    # People say what became of the call in doubt: both decisions about it get the same outcome.
    send(bea, doubt, "settle/happened", result='"set"')
    office.advance(doubt.run_id)
    found = ApprovalOutcome.objects.filter(run_id=doubt.run_id, call=doubt.call, frame=doubt.frame)
    assert sorted(found.values_list("approval", "outcome")) == sorted(
        [(made["b"].id, "done"), (doubt.id, "done")]
    )
    shows(bea, "/decisions/?outcome=in_doubt", "No decisions")


def test_a_transaction_of_a_tool_records_its_outcome(office: Office) -> None:
    office.effects.tools["set_privileges"] = FakeTool(effect=EffectClass.TRANSACTIONAL, gated=True)
    run = office.start()
    office.approve(run)
    assert [one.outcome for one in ApprovalOutcome.objects.filter(run_id=run)] == ["done"]


def test_a_failed_call_is_not_green_without_its_journal(bea: Client, office: Office) -> None:
    office.effects.tools["set_privileges"] = FakeTool(
        gated=True, body=lambda asked: ToolFailure(error="no such person")
    )
    run = office.start()
    office.approve(run)
    approval = office.request(run)
    shows(bea, approval, 'class="note danger"', "Status: failed", "no such person")
    JournalEntry.objects.filter(run_id=run).delete()
    shows(
        bea, approval, 'class="note danger"', "Status: failed", hides=["no such person", "note ok"]
    )
    shows(bea, "/decisions/", 'class="badge danger">Failed')


def test_last_tuesday_is_two_clicks_from_the_inbox(bea: Client, cast: Any) -> None:
    today = timezone.localdate()
    days = [today - timedelta(days=back) for back in range(8)]
    for day in days:
        approval = seeds.pending()
        seeds.decide(approval, BEA)
        Approval.objects.filter(id=approval.id).update(
            decided_at=timezone.now() - timedelta(days=(today - day).days),
            sentence=f"decided on {day}",
        )
    has(text(bea, "/inbox/"), 'href="/decisions/"')
    page = text(bea, "/decisions/")
    in_order(page, "Today", "Yesterday", f"{days[2]:%A}", f"{days[6]:%A}", f"Last {days[7]:%A}")
    for day in days:
        query = f"since={day}&amp;until={day}"
        assert f'href="?{query}"' in page
        shown = text(bea, f"/decisions/?{query.replace('&amp;', '&')}")
        has(shown, f"decided on {day}", f"{day:%A}, {day.day} {day:%B %Y}", 'aria-current="true"')
        assert shown.count('<li class="row"') == 1


def test_filters_suggest_the_names_in_the_list(bea: Client, asked: Approval) -> None:
    seeds.decide(asked, BEA)
    lists = text(bea, "/decisions/").split("<datalist")[1:]
    pairs = (("person", "bea"), ("by", "ada"), ("agent", asked.path[0]), ("tool", asked.tool))
    for found, (field, name) in zip(lists, pairs, strict=True):
        has(found, f'id="l-{field}"', f'value="{name}"')


def test_a_lookalike_is_named_in_the_history_and_the_activity(
    bea: Client, admin: Client, asked: Approval
) -> None:
    reseal([asked], sentence="Pay billing@p\u0430ypal.com")
    seeds.decide(asked, BEA)
    for page in (text(bea, "/decisions/"), text(admin, "/people/bea/activity/")):
        has(page, "mixes Latin and Cyrillic letters")


def test_days_and_times_are_those_of_the_browser(bea: Client, cast: Any) -> None:
    approval = seeds.pending()
    seeds.decide(approval, BEA)
    Approval.objects.filter(id=approval.id).update(decided_at="2026-03-28T22:59:59Z")
    bea.cookies["signoff_zone"] = "Asia/Tokyo"
    shows(bea, "/decisions/?since=2026-03-29", "Sunday, 29 March 2026", ">07:59:59<", "Asia/Tokyo")
    for wrong in ("../../etc/passwd", "x" * 99, "Nowhere"):
        bea.cookies["signoff_zone"] = wrong
        shows(bea, "/decisions/?since=2026-03-29", "No decisions", "those of UTC")


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("garbage=1", ("<bdi>garbage</bdi>", "is not a filter of this list")),
        ("q=garbage:xyz", ("the search", "no filter garbage:", 'value="garbage:xyz"')),
        ("risk=none&person=bea", ("<bdi>risk</bdi>", 'name="person" value="bea"')),
    ],
)
def test_a_wrong_filter_is_named_and_keeps_the_others(
    bea: Client, query: str, words: tuple[str, ...]
) -> None:
    shows(bea, f"/decisions/?{query}", *words, status=422)
    assert text_of(bea.get(f"/decisions.csv?{query}"), 422)
    text(bea, "/decisions/?cursor=nonsense", 404)


def test_pages_and_files_have_every_row_once(
    bea: Client, bea_api: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the walk ends before a page is full, and between rows of one moment."""
    monkeypatch.setattr(history, "SCANNED", 3)
    monkeypatch.setattr(history_page, "ROWS", 2)
    at, verdicts = (
        timezone.now(),
        ["approve", "deny", "deny", "approve", "approve", "approve", "deny"],
    )
    run = seeds.run()
    calls = [f"c2.{n}" for n in range(len(verdicts))]
    for approval, verdict in zip(
        seeds.opened(*(seeds.snapshot(run, call=call) for call in calls)), verdicts, strict=True
    ):
        seeds.decide(approval, BEA, verdict, '=cmd("x")')
    Approval.objects.update(decided_at=at)
    for row in Approval.objects.order_by("id")[::2]:  # which two walks find in turn
        Approval.objects.filter(id=row.id).update(path=["account_agent", "set_privileges"])
    for query, count in (
        ("", 7),
        ("verdict=denied", 3),
        ("person=bea&verdict=denied", 3),
        ("by=bea", 0),
        ("agent=account_agent", 7),
    ):
        ids = list[str]()
        cursor: str | None = ""
        while cursor is not None:
            page = bea_api.get(
                f"/decisions?{query}&limit=50&cursor={cursor}".removesuffix("&cursor=")
            ).json()
            ids, cursor = [*ids, *(item["request"] for item in page["items"])], page["next"]
        lines = _file(bea, f"/decisions.jsonl?{query}").splitlines()
        assert ids == [json.loads(line)["request"] for line in lines]
        assert (len(ids), len(set(ids))) == (count, count)
        rows = list(csv.DictReader(StringIO(_file(bea, f"/decisions.csv?{query}"))))
        assert [row["request"] for row in rows] == ids
        assert {row["reason"] for row in rows} <= {'\'=cmd("x")'}
    shows(bea, "/decisions/?verdict=denied", "Searched back to", "older decisions")


def test_edits_and_voters_are_on_the_page_in_the_files_and_in_the_api(
    bea: Client, bea_api: Caller, admin: Client, cast: Any
) -> None:
    reviewers("eva")
    args = {"username": "new.hire", "security_level": 3}
    paid = seeds.pending(args=args)
    seeds.decide(paid, BEA, "edit", arguments={**args, "security_level": 2})
    signed = asked("rules: [{name: Two, quorum: 2}]")
    for person in (Actor(person="eva"), BEA):
        seeds.decide(signed, person, reason="fine")
    voted, edited = bea_api.get("/decisions").json()["items"]
    assert (edited["verdict"], edited["voters"]) == ("edited", [])
    assert edited["edits"] == [{"path": "security_level", "before": 3, "after": 2}]
    assert [(one["person"], one["voted_for"]) for one in voted["voters"]] == [
        ("eva", None),
        ("bea", None),
    ]
    lines = [json.loads(line) for line in _file(bea, "/decisions.jsonl").splitlines()]
    for line, item in zip(lines, (voted, edited), strict=True):
        assert (line["edits"], line["voters"][:0]) == (item["edits"], [])
        assert [one["person"] for one in line["voters"]] == [
            one["person"] for one in item["voters"]
        ]
    rows = list(csv.DictReader(StringIO(_file(bea, "/decisions.csv"))))
    assert [row["voters"] for row in rows] == ["eva, bea", ""]
    assert [row["edits"] for row in rows] == ["", "security_level: 3 → 2"]
    shows(bea, "/decisions/?verdict=edited", "Approved with changes", "security_level")
    for client, page in ((bea, "/decisions/?person=eva"), (admin, "/people/eva/activity/")):
        shows(client, page, "Approvals:", "<bdi>eva</bdi>", "by", "<bdi>bea</bdi>")


def _file(client: Client, path: str) -> str:
    answer: Any = client.get(path)
    assert answer.status_code == 200
    assert answer["Content-Disposition"].startswith("attachment")
    return b"".join(answer.streaming_content).decode()


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@x", " =1", "\t=1", "\r\n@x", "\n1", "＝1"])
def test_no_cell_is_a_formula(text: str) -> None:
    assert downloads.format_cell(text) == f"'{text}"
    assert downloads.format_cell(f"a{text}") == f"a{text}"


def test_exports_are_few_at_once_and_logged(
    bea: Client,
    cast: Any,
    caplog: pytest.LogCaptureFixture,
    django_capture_on_commit_callbacks: Any,
) -> None:
    seeds.decide(seeds.pending(), BEA)
    with django_capture_on_commit_callbacks(execute=True):
        running: list[Any] = [
            bea.get("/decisions.csv?person=bea") for _ in range(downloads.RUNNING)
        ]
    assert 'bea exports the history of decisions as csv: {"person": "bea"}' in caplog.text
    assert bea.get("/decisions.jsonl").status_code == 503
    b"".join(running.pop().streaming_content)
    assert _file(bea, "/decisions.jsonl")
