"""The page after a decision names the real state: paused, about to start, failed, in doubt, done."""

import re
from datetime import timedelta
from uuid import UUID

import pytest
from django.http import HttpResponse
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


def _send(client: Client, request: Request, way: str, **form: str) -> HttpResponse:
    body = {"digest": request.request_digest, **form}
    return client.post(f"/a/{request.id}/{way}/", body)  # type: ignore[return-value]


def _text(client: Client, request: Request) -> str:
    page = client.get(f"/a/{request.id}/").content.decode()
    return " ".join(page.split())


def _box(page: str) -> str:
    """The box of the verdict, with its class."""
    found = re.search(
        r'<div class="note[^>]*role="status">(?:(?!</section>).)*?<div class="split">', page
    )
    assert found
    return found[0]


def test_a_call_that_is_approved_waits_for_no_person(
    bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    _send(bea, request, "approve")
    page = _text(bea, request)
    assert "Approved. A worker starts it next." in page
    assert "Status: approved, a worker starts it next" in page
    assert "The call may start once" in page
    assert "waiting for a person" not in _box(page)


def test_while_the_agent_is_stopped_nothing_is_said_to_start(
    bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    engage(agent="", reason="because", actor=None)
    _send(bea, request, "approve")
    page = _text(bea, request)
    assert "Approved. It takes effect when every agent is resumed." in page
    assert "approved, starts when every agent is resumed" in page


def test_while_the_run_is_paused_nothing_is_said_to_start(
    bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    pause(run=suspended, reason="", actor=Actor(person="ada"))
    _send(bea, request, "approve")
    page = _text(bea, request)
    assert "Approved. It takes effect when the run is resumed." in page
    assert "approved, starts when the run is resumed" in page


def test_while_it_can_be_undone_nothing_is_said_to_start(
    bea: Client, office: Office, suspended: UUID, settings: Settings
) -> None:
    settings.ABEYANCE_UNDO_SECONDS = 600
    request = office.request(suspended)
    _send(bea, request, "approve")
    page = _text(bea, request)
    assert re.search(r"Approved\. It takes effect in \d+ min; until then you can undo it\.", page)
    assert "approved, takes effect in" in page
    engage(agent="", reason="because", actor=None)
    assert "then waits until every agent is resumed" in _box(_text(bea, request))


def test_a_call_that_ran_may_not_start_and_shows_its_result(
    bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    _send(bea, request, "approve")
    office.advance(suspended)
    page = _text(bea, request)
    assert "Status: done" in page
    assert "The call may start once" not in page
    assert ">Result<" in page
    assert 'class="note ok"' in _box(page)


def test_a_call_that_failed_is_not_in_a_green_box(bea: Client, office: Office) -> None:
    fault = ToolFailure(error="permission denied for the directory")
    office.effects.tools["set_privileges"] = FakeTool(gated=True, body=lambda request: fault)
    request = office.request(office.start())
    _send(bea, request, "approve")
    office.advance(request.run_id)
    box = _box(_text(bea, request))
    assert 'class="note danger"' in box
    assert "Status: failed" in box
    assert "permission denied for the directory" in box


def test_decided_today_shows_the_outcome_of_each_call(bea: Client, office: Office) -> None:
    said_of: dict[str, ToolFailure | Unknown] = {
        "a": ToolFailure(error="no such <person>"),
        "b": Unknown(error="cut off"),
    }
    office.effects.tools["set_privileges"] = FakeTool(
        gated=True, body=lambda asked: said_of.get(asked.args["username"], ToolResult(value="set"))
    )
    for name in ("a", "b", "c"):
        run = office.start(args={"username": name, "security_level": 1})
        _send(bea, office.request(run), "approve")
        if name != "c":
            office.advance(run)
    done = office.start(args={"username": "d", "security_level": 1})
    office.approve(done)
    rows = bea.get("/inbox/?view=decided").content.decode().split('<li class="row"')[1:]
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


def test_a_report_is_recorded_until_a_worker_applies_it(bea: Client, office: Office) -> None:
    request = office.in_doubt_request(office.in_doubt())
    _send(bea, request, "settle/happened", result='{"message_id": "m-1"}')
    box = _box(_text(bea, request))
    assert "Status: recorded, a worker applies it next" in box
    assert "in doubt" not in box
    office.advance(request.run_id)
    assert "Done, as reported" in bea.get("/inbox/?view=decided").content.decode()


def test_a_call_in_doubt_leads_to_where_it_is_settled(bea: Client, office: Office) -> None:
    office.effects.tools["set_privileges"] = FakeTool(gated=True, body=LOST.body)
    request = office.request(office.start())
    _send(bea, request, "approve")
    office.advance(request.run_id)
    box = _box(_text(bea, request))
    assert 'class="note warn"' in box
    assert f'href="/a/{office.in_doubt_request(request.run_id).id}/"' in box


def test_a_reason_typed_before_approving_is_kept(
    bea: Client, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    page = _text(bea, request)
    form = re.search(r'<form class="no" id="deny".*?</form>', page)
    assert form
    assert 'name="reason"' in form[0]
    assert f'form="deny" formaction="/a/{request.id}/approve/" formnovalidate' in page
    _send(bea, request, "approve", reason="Her lead agreed.")
    assert "Her lead agreed." in _box(_text(bea, request))


def test_a_run_waits_since_its_gate_opened(bea: Client, suspended: UUID) -> None:
    now = timezone.now()
    Run.objects.filter(id=suspended).update(created_at=now - timedelta(hours=3))
    Gate.objects.filter(run=suspended).update(opened_at=now - timedelta(minutes=2))
    page = bea.get("/runs/").content.decode()
    assert re.search(r"for 2 min 0\d s", page)
    assert "for 3 h" not in page
    assert "3 h ago" in page


@pytest.mark.parametrize("typed", ["3 rows", '"3 rows"'])
def test_text_is_reported_as_it_is_typed(bea: Client, office: Office, typed: str) -> None:
    office.effects.result_schema = {"type": "string"}
    request = office.in_doubt_request(office.in_doubt())
    assert "Result (text)" in _text(bea, request)
    assert _send(bea, request, "settle/happened", result=typed).status_code == 302
    office.advance(request.run_id)
    assert typed.replace('"', "&quot;") in _box(_text(bea, request))


def test_text_will_do_where_the_tool_does_not_say(bea: Client, office: Office) -> None:
    office.effects.result_schema = None
    request = office.in_doubt_request(office.in_doubt())
    broken = _send(bea, request, "settle/happened", result='{"id": 1')
    assert "result is not JSON (line 1)" in broken.content.decode()
    assert _send(bea, request, "settle/happened", result="3 rows").status_code == 302


def test_the_limit_gate_offers_the_same_amount_and_explains_it(bea: Client, office: Office) -> None:
    request = office.short(Budget(turns=1))
    assert 'name="grant.turns" value="1"' in _text(bea, request)
    answer = _send(bea, request, "continue", **{"grant.turns": "abc", "reason": "Once more."})
    page = answer.content.decode()
    assert "more turns must be a number. Enter a number of turns, or unlimited." in page
    assert 'value="abc"' in page
    assert "Once more." in page
