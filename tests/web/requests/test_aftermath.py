"""The page after a decision names the real state: paused, about to start, failed, in doubt, done."""

import re
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Request
from runtime.control.kill_switches import engage
from runtime.control.pause import pause
from runtime.core.budgets import Budget
from runtime.models import Gate, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ToolFailure, ToolResult, Unknown
from tests.support.fake_ports import FakeTool
from tests.support.office import LOST, Office
from tests.support.pages import has, send, shows, text, text_of


def _text(client: Client, request: Request) -> str:
    return " ".join(text(client, request).split())


def _box(client: Client, request: Request) -> str:
    """The box of the verdict, with its class."""
    box = r'<div class="note[^>]*role="status">(?:(?!</section>).)*?<div class="split">'
    found = re.search(box, _text(client, request))
    assert found
    return found[0]


def _stop(run: UUID) -> None:
    engage(agent="", reason="because", actor=None)


def _pause(run: UUID) -> None:
    pause(run=run, reason="", actor=Actor(person="ada"))


@pytest.mark.parametrize(
    ("hinder", "takes_effect", "status"),
    [
        (lambda run: None, "A worker starts it next.", "a worker starts it next"),
        (
            _stop,
            "It takes effect when every agent is resumed.",
            "starts when every agent is resumed",
        ),
        (_pause, "It takes effect when the run is resumed.", "starts when the run is resumed"),
    ],
)
def test_the_page_says_when_an_approved_call_starts(
    bea: Client, asked: Request, hinder: Callable[[UUID], None], takes_effect: str, status: str
) -> None:
    hinder(asked.run_id)
    send(bea, asked, "approve")
    page = has(_text(bea, asked), f"Approved. {takes_effect}", f"Status: approved, {status}")
    has(page, "The call may start once")
    has(_box(bea, asked), hides=["waiting for a person"])


def test_while_it_can_be_undone_nothing_is_said_to_start(
    bea: Client, asked: Request, settings: Settings
) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 600
    send(bea, asked, "approve")
    page = has(_text(bea, asked), "approved, takes effect in")
    assert re.search(r"Approved\. It takes effect in \d+ min; until then you can undo it\.", page)
    _stop(asked.run_id)
    has(_box(bea, asked), "then waits until every agent is resumed")


def test_a_call_that_ran_may_not_start_and_shows_its_result(
    bea: Client, office: Office, asked: Request
) -> None:
    send(bea, asked, "approve")
    office.advance(asked.run_id)
    has(_text(bea, asked), "Status: done", ">Result<", hides=["The call may start once"])
    has(_box(bea, asked), 'class="note ok"')


def test_a_call_that_failed_is_not_in_a_green_box(bea: Client, office: Office) -> None:
    fault = ToolFailure(error="permission denied for the directory")
    office.effects.tools["set_privileges"] = FakeTool(gated=True, body=lambda request: fault)
    run = office.start()
    office.approve(run)
    box = _box(bea, office.request(run))
    has(box, 'class="note danger"', "Status: failed", "permission denied for the directory")


def test_decided_today_shows_the_outcome_of_each_call(bea: Client, office: Office) -> None:
    said_of: dict[str, ToolFailure | Unknown] = {
        "a": ToolFailure(error="no such <person>"),
        "b": Unknown(error="cut off"),
    }
    office.effects.tools["set_privileges"] = FakeTool(
        gated=True, body=lambda asked: said_of.get(asked.args["username"], ToolResult(value="set"))
    )
    for name in ("a", "b", "c", "d"):
        run = office.start(args={"username": name, "security_level": 1})
        send(bea, office.request(run), "approve")
        if name != "c":
            office.advance(run)
    rows = text(bea, "/inbox/?view=decided").split('<li class="row"')[1:]
    said = [re.findall(r'class="badge ?(\w*)">(?:<svg.*?</svg>)?([A-Z][^<]*)', row) for row in rows]
    assert said == [
        [("", "Approved"), ("ok", "Done")],
        [("ok", "Approved")],
        [("", "Approved"), ("warn", "In doubt")],
        [("", "Approved"), ("danger", "Failed")],
    ]
    assert "set" in rows[0]
    assert "cut off" in rows[2]
    assert "no such &lt;person&gt;" in rows[3]


def test_a_report_is_recorded_until_a_worker_applies_it(
    bea: Client, office: Office, doubt: Request
) -> None:
    send(bea, doubt, "settle/happened", result='{"message_id": "m-1"}')
    has(_box(bea, doubt), "Status: recorded, a worker applies it next", hides=["in doubt"])
    office.advance(doubt.run_id)
    shows(bea, "/inbox/?view=decided", "Done, as reported")


def test_a_call_in_doubt_leads_to_where_it_is_settled(bea: Client, office: Office) -> None:
    office.effects.tools["set_privileges"] = FakeTool(gated=True, body=LOST.body)
    run = office.start()
    office.approve(run)
    box = _box(bea, office.request(run))
    has(box, 'class="note warn"', f'href="/a/{office.in_doubt_request(run).id}/"')


def test_a_reason_typed_before_approving_is_kept(bea: Client, asked: Request) -> None:
    page = _text(bea, asked)
    form = re.search(r'<form class="no" id="deny".*?</form>', page)
    assert form
    has(form[0], 'name="reason"')
    has(page, f'form="deny" formaction="/a/{asked.id}/approve/" formnovalidate')
    send(bea, asked, "approve", reason="Her lead agreed.")
    has(_box(bea, asked), "Her lead agreed.")


def test_a_run_waits_since_its_gate_opened(bea: Client, suspended: UUID) -> None:
    now = timezone.now()
    Run.objects.filter(id=suspended).update(created_at=now - timedelta(hours=3))
    Gate.objects.filter(run=suspended).update(opened_at=now - timedelta(minutes=2))
    page = shows(bea, "/runs/", "3 h ago", hides=["for 3 h"])
    assert re.search(r"for 2 min 0\d s", page)


@pytest.mark.parametrize("typed", ["3 rows", '"3 rows"'])
def test_text_is_reported_as_it_is_typed(bea: Client, office: Office, typed: str) -> None:
    office.effects.result_schema = {"type": "string"}
    request = office.in_doubt_request(office.in_doubt())
    has(_text(bea, request), "Result (text)")
    assert send(bea, request, "settle/happened", result=typed).status_code == 302
    office.advance(request.run_id)
    has(_box(bea, request), typed.replace('"', "&quot;"))


def test_text_will_do_where_the_tool_does_not_say(bea: Client, office: Office) -> None:
    office.effects.result_schema = None
    request = office.in_doubt_request(office.in_doubt())
    shows(bea, request, "so any text or JSON value is accepted")
    broken = send(bea, request, "settle/happened", result='{"id": 1')
    has(text_of(broken, 422), "result is not JSON (line 1)")
    assert send(bea, request, "settle/happened", result="3 rows").status_code == 302


def test_the_limit_gate_offers_the_same_amount_and_explains_it(bea: Client, office: Office) -> None:
    request = office.short(Budget(turns=1))
    has(_text(bea, request), 'name="grant.turns" value="1"')
    answer = send(bea, request, "continue", **{"grant.turns": "abc", "reason": "Once more."})
    has(text_of(answer, 422), 'value="abc"', "Once more.")
