"""Agents outside ask for approvals, use them once, and report what became of them."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any
from uuid import UUID, uuid4

import httpx2
import pytest
from django.test import Client, override_settings

from agents.catalogue.published import publish
from agents.external_agent import with_external_agent
from agents.registry import Registry
from approvals import clock
from approvals.decisions import checks, external_requests
from approvals.errors import AlreadyCancelled, Expired
from approvals.models import Approval, ApprovalUse
from approvals.people.accounts import set_groups
from approvals.rules.policy import Group
from approvals.web.api import aap
from runtime.control.kill_switches import engage
from runtime.control.verification import verify
from runtime.core.values.enums import GateKind
from runtime.core.values.limits import MAX_REPORTED
from runtime.errors import Forbidden, InvalidInput
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.store import pool
from runtime.upkeep import retention, retention_rules
from tests.support.pages import has, shows, text_of
from tests.support.people import until
from tests.support.seeds import decide
from tests.support.threads import together
from tests.web.aap.conftest import BODY, Desk, Door, code, wait_for


@pytest.mark.parametrize(
    ("claim", "risk"), [("high", "high"), ("low", "medium"), (7, "medium"), (None, "medium")]
)
def test_an_instance_can_only_raise_the_risk(
    bot: Door, desk: Desk, claim: object, risk: str
) -> None:
    made = bot.ask({**BODY, "context": {"risk": claim}})
    desk.advance(made["id"])
    assert desk.approval(made["id"]).risk == risk
    desk.decide(made["id"])
    assert bot.use(made["id"]).status_code == 200


def test_what_was_sent_comes_back_to_the_byte(bot: Door, desk: Desk) -> None:
    arguments = (
        '{ "z": 0.10000000000000001, "big": 123456789012345678901234567890, "e": 1E+2,'
        ' "one": 1.0, "nul": "a\\u0000b", "half": "\\ud800", "ü": [true, null, -0.0] }'
    )
    body = f'{{"tool": "pay", "arguments": {arguments}, "timeout": "90m"}}'
    answer = bot.send("POST", "/requests", body, "k")
    assert answer.status_code == 201, answer.content
    assert f'"arguments":{arguments}' in answer.content.decode()
    desk.decide(answer.json()["id"])
    used = bot.use(answer.json()["id"])
    assert used.status_code == 200, used.content
    assert f'"arguments":{arguments}' in used.content.decode()
    shown = json.loads(desk.approval(answer.json()["id"]).args)["arguments"]
    assert shown["z"] == "0.10000000000000001"
    assert shown["big"] == "123456789012345678901234567890"
    assert (shown["e"], shown["one"], shown["nul"]) == (100, 1, "a\\0b")


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"tool": ""}, "tool"),
        ({"tool": 7}, "tool"),
        ({"server": ""}, "server"),
        ({"arguments": []}, "arguments"),
        ({"context": None}, "context"),
        ({"timeout": "0s"}, "timeout"),
        ({"timeout": "10"}, "timeout"),
        ({"delivery": {}}, "delivery"),
        ({"arguments": {"text": "x" * 70_000}}, "arguments"),
    ],
)
def test_a_wrong_field_is_named(bot: Door, change: dict[str, Any], param: str) -> None:
    answer = bot.send("POST", "/requests", {**BODY, **change}, "k")
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request"
    assert answer.json()["error"]["param"] == param
    assert not Run.objects.exists()


@pytest.mark.parametrize(
    "body",
    [
        "",
        "[]",
        "{",
        '{"tool": "a", "tool": "a", "arguments": {}, "timeout": "1m"}',
        '{"tool": "a", "arguments": {"b": NaN}, "timeout": "1m"}',
        '{"tool": "a", "arguments": {"b": 1, "b": 1}, "timeout": "1m"}',
        '{"tool": "a", "arguments": {}, "timeout": "1m"} x',
        '{"tool": "a", "arguments": ' + '{"a":' * 500 + "1" + "}" * 500 + ', "timeout": "1m"}',
        b'{"tool": "\xff", "arguments": {}, "timeout": "1m"}',
        '{"tool": "a", "arguments": {"b": 1e99999999999999999999}, "timeout": "1m"}',
    ],
)
def test_what_is_no_json_object_is_refused(bot: Door, body: str | bytes) -> None:
    answer = bot.send("POST", "/requests", body, "k")
    assert answer.status_code == 400, answer.content
    assert "class" not in answer.json()["error"]["message"]
    assert not Run.objects.exists()


def test_a_key_stands_for_one_request(bot: Door, desk: Desk) -> None:
    assert code(bot.send("POST", "/requests", BODY)) == (400, "missing_idempotency_key")
    made = bot.ask(key="k")
    reordered = json.dumps(dict(reversed(BODY.items())), indent=1).replace("3", "3.0")
    again = bot.send("POST", "/requests", reordered, "k")
    assert (again.status_code, again.json()["id"]) == (200, made["id"])
    other = {**BODY, "agent_reasoning": "Because."}
    assert code(bot.send("POST", "/requests", other, "k")) == (409, "idempotency_conflict")
    desk.decide(made["id"])
    assert bot.ask(key="k")["status"] == "approved"  # its present state


def test_two_creates_with_one_key_make_one_request(bot: Door) -> None:
    answers: list[Any] = []
    together([lambda: answers.append(bot.ask(key="k"))] * 4)
    assert len({answer["id"] for answer in answers}) == 1
    assert Run.objects.count() == 1


def test_a_decision_that_can_be_undone_is_none_yet(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    with override_settings(SIGNOFF_UNDO_SECONDS=60):
        desk.decide(made["id"])
    assert bot.read(made["id"])["status"] == "pending"
    assert code(bot.use(made["id"])) == (409, "not_approved")
    assert bot.send("DELETE", f"/requests/{made['id']}").json()["status"] == "cancelled"


def test_an_undo_ends_with_the_deadline(bot: Door, desk: Desk) -> None:
    made = bot.ask({**BODY, "timeout": "30s"})
    with override_settings(SIGNOFF_UNDO_SECONDS=300):
        desk.decide(made["id"])
    approval = desk.approval(made["id"])
    assert approval.effective_at == approval.expires_at
    assert approval.expires_at is not None
    assert approval.expires_at <= datetime.fromisoformat(made["deadline_at"])


def test_a_person_cannot_change_or_answer_the_call(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    desk.advance(made["id"])
    approval = desk.approval(made["id"])
    for verdict, value in (
        ("edit", {"arguments": json.loads(approval.args)}),
        ("answer", {"result": {}}),
    ):
        with pytest.raises(InvalidInput, match="as it asked"):
            decide(approval, Actor(person="bea"), verdict, "why", **value)


def test_a_request_expires_at_its_deadline_also_if_no_worker_saw_it(bot: Door, desk: Desk) -> None:
    made, unseen = (bot.ask({**BODY, "timeout": "1s"}) for _ in range(2))
    desk.advance(made["id"])
    wait_for(unseen["deadline_at"])
    expired, other = bot.read(made["id"]), bot.read(unseen["id"])
    assert expired["decision"] == {"status": "expired", "decided_at": made["deadline_at"]}
    with pytest.raises(Expired):
        decide(desk.approval(made["id"]), Actor(person="bea"))
    desk.advance(unseen["id"])
    assert other["status"] == "expired"
    assert (bot.read(made["id"]), bot.read(unseen["id"])) == (expired, other)
    assert code(bot.send("DELETE", f"/requests/{made['id']}")) == (409, "already_terminal")
    assert code(bot.use(made["id"])) == (409, "not_approved")


def test_people_have_thirty_days_at_most(bot: Door) -> None:
    made = bot.ask({**BODY, "timeout": "9" * 30 + "h"})
    times = [datetime.fromisoformat(made[name]) for name in ("created_at", "deadline_at")]
    assert times[1] - times[0] == timedelta(days=30)
    assert made["timeout"] == "9" * 30 + "h"


def test_a_cancelled_request_stays_so(bot: Door, desk: Desk) -> None:
    early, late = bot.ask(), bot.ask()
    desk.advance(late["id"])
    for made in (early, late):
        cancelled = bot.send("DELETE", f"/requests/{made['id']}").json()
        assert cancelled["decision"]["status"] == "cancelled"
        assert bot.send("DELETE", f"/requests/{made['id']}").json() == cancelled
        assert desk.advance(made["id"]) == "cancelled"
        assert bot.read(made["id"]) == cancelled
        assert code(bot.use(made["id"])) == (409, "not_approved")
    with pytest.raises(AlreadyCancelled):
        decide(desk.approval(late["id"]), Actor(person="bea"))


def test_an_approval_is_used_once_of_many_at_once(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    desk.decide(made["id"])
    statuses: list[int] = []

    def use(key: str) -> None:
        statuses.append(bot.use(made["id"], key).status_code)

    together([partial(use, key) for key in "abcd"])
    assert sorted(statuses) == [200, 409, 409, 409]
    assert code(bot.use(made["id"], "e")) == (409, "already_consumed")


def test_an_approval_expires_if_it_is_not_used(bot: Door, desk: Desk) -> None:
    with override_settings(SIGNOFF_USE_SECONDS=0.5):
        made = bot.ask()
    desk.decide(made["id"])
    approved = bot.read(made["id"])
    wait_for(approved["decision"]["expires_at"])
    assert code(bot.use(made["id"])) == (409, "approval_expired")
    assert bot.read(made["id"]) == approved
    until(lambda: (desk.advance(made["id"]) == "completed") or None, "the run to end")


def test_the_use_of_an_approval_waits_until_the_run_has_the_decision(
    bot: Door, desk: Desk, web: str, caplog: pytest.LogCaptureFixture
) -> None:
    """On a connection of its own: the server asks again when the run has changed."""
    from config import asgi

    made = bot.ask()
    desk.advance(made["id"])
    decide(desk.approval(made["id"]), Actor(person="bea"))
    assert code(bot.use(made["id"])) == (503, "not_ready")
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    headers = {**bot.headers, "idempotency-key": "k"}
    url = f"{web}/api/aap/v1/requests/{made['id']}/consume"
    with ThreadPoolExecutor() as threads:
        use = threads.submit(httpx2.post, url, headers=headers, timeout=60.0, trust_env=False)
        until(lambda: asgi.live_server.count_waiting() == 1 or None, "the use to wait")
        assert not use.done()
        # Asking again locks the run's row for a moment, and then no worker claims the run.
        until(lambda: (desk.advance(made["id"]) and use.done()) or None, "the run to go on")
        answer = use.result()
    assert (answer.status_code, "consumption" in answer.json()) == (200, True)
    assert ApprovalUse.objects.count() == 1


def test_an_approval_of_other_arguments_is_not_used(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    desk.decide(made["id"])
    stored = Run.objects.get(id=made["id"])
    assert "1.4.2" in stored.input
    Run.objects.filter(id=stored.id).update(input=stored.input.replace("1.4.2", "6.6.6"))
    assert code(bot.use(made["id"])) == (409, "not_approved")
    assert not ApprovalUse.objects.exists()


@pytest.mark.parametrize("agent", ["", "external_agent"])
def test_a_stop_keeps_approvals_from_use(bot: Door, desk: Desk, agent: str) -> None:
    made = bot.ask()
    desk.decide(made["id"])
    publish(with_external_agent(Registry(agents={})))
    engage(agent=agent, reason="storm", actor=None)
    assert code(bot.use(made["id"])) == (409, "not_approved")


def test_an_outcome_is_reported_once(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    desk.decide(made["id"])
    assert code(bot.report(made["id"])) == (409, "not_consumed")
    bot.use(made["id"])
    reported = bot.report(made["id"], "failed", note="boom")
    assert bot.report(made["id"], "failed", note="boom").json() == reported.json()
    assert code(bot.report(made["id"])) == (409, "outcome_conflict")
    assert desk.advance(made["id"]) == "completed"
    assert "boom" in str(Run.objects.get(id=made["id"]).output)
    assert not verify(UUID(made["id"])).findings


@pytest.mark.parametrize(
    ("note", "kept"), [("a\0b\ud800", "a\\0b\\ud800"), ("x" * 1_500_000, "x" * MAX_REPORTED)]
)
def test_no_outcome_is_lost_by_its_note(bot: Door, desk: Desk, note: str, kept: str) -> None:
    made = bot.ask()
    desk.decide(made["id"])
    bot.use(made["id"])
    for _ in range(2):
        reported = bot.report(made["id"], note=note).json()
        assert reported["consumption"]["outcome"]["note"] == kept
    assert desk.advance(made["id"]) == "completed"


def test_a_call_without_a_report_is_in_doubt_until_it_comes(
    bot: Door, desk: Desk, bea: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runtime.execution.step_events.OUTCOME_WITHIN", timedelta(0))
    made = bot.ask()
    desk.decide(made["id"])
    bot.use(made["id"])
    until(lambda: (desk.advance(made["id"]) == "suspended") or None, "the call to be in doubt")
    doubt = Approval.objects.get(run=made["id"], kind="in_doubt")
    page = shows(bea, f"/a/{doubt.id}/", "Asked by an agent outside", hides=["Run it again"])
    assert "It happened" in page
    with pytest.raises(InvalidInput, match="makes the call once"):
        checks.check_verdict("run_again", "outcome", GateKind.IN_DOUBT, doubt)
    assert not verify(UUID(made["id"])).findings
    assert bot.read(made["id"])["status"] == "approved"
    assert bot.report(made["id"]).status_code == 200
    until(lambda: (desk.advance(made["id"]) == "completed") or None, "the run to end")
    doubt.refresh_from_db()
    assert doubt.status == Approval.Status.CANCELLED
    assert not verify(UUID(made["id"])).findings


def test_the_person_who_provisioned_asks_and_never_decides(bot: Door, desk: Desk) -> None:
    made = bot.ask()
    desk.advance(made["id"])
    approval = desk.approval(made["id"])
    assert approval.requester == "admin"
    set_groups("admin", [Group.ADMINS, Group.REVIEWERS], actor=None)
    with pytest.raises(Forbidden):
        decide(approval, Actor(person="admin"))


def test_an_instance_has_a_limit_of_open_requests(
    bot: Door, desk: Desk, provision: Callable[[str], Door], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(external_requests, "MAX_OPEN", 2)
    first = bot.ask(key="a")
    bot.ask()
    refused = bot.send("POST", "/requests", BODY, "c")
    assert code(refused) == (429, "too_many_pending")
    assert refused.json()["error"]["type"] == "rate_limit"
    assert int(refused["Retry-After"]) == aap.RETRY_SECONDS
    assert bot.ask(key="a")["id"] == first["id"]
    provision("Other bot").ask()
    assert bot.send("DELETE", f"/requests/{first['id']}").status_code == 200
    desk.advance(first["id"])
    bot.ask()


def test_addresses_and_methods_that_are_not_there(bot: Door) -> None:
    assert code(bot.send("GET", "/nothing")) == (404, "not_found")
    assert code(bot.send("PUT", "/requests", {}, "k")) == (405, "method_not_allowed")
    assert code(bot.send("GET", "/requests/nothing")) == (404, "not_found")
    assert code(bot.send("GET", f"/requests/{uuid4()}")) == (404, "not_found")
    assert code(bot.send("GET", f"/requests/{uuid4()}?wait=soon")) == (400, "invalid_field")
    assert code(bot.send("POST", "/requests/", BODY, "k")) == (404, "not_found")


@pytest.mark.parametrize(("status", "days"), [("completed", 9), ("failed", 39)])
def test_a_request_outlasts_its_replays_whatever_retention_says(
    bot: Door, desk: Desk, settings: Any, status: str, days: int
) -> None:
    settings.SIGNOFF_RETENTION = retention_rules.parse("1")
    made = bot.ask(key="k")
    desk.decide(made["id"], "deny", "No")
    for age, removed in ((days - 0.1, 0), (days + 0.1, 1)):
        ended = clock.read_time() - timedelta(days=age)
        Run.objects.update(ended_at=ended, status=status)
        with pool.open_own() as connection:
            assert sum(group.runs for group in retention.preview(connection)) == removed


def test_its_deadline_is_never_extended(bot: Door, desk: Desk, bea: Client) -> None:
    made = bot.ask()
    desk.advance(made["id"])
    approval = desk.approval(made["id"])
    shows(bea, approval, "which never changes", hides=["extend-until"])
    until = f"{datetime.now(UTC) + timedelta(days=10):%Y-%m-%dT%H:%M}"
    answer = bea.post(f"/a/{approval.id}/extend/", {"until": until, "reason": "x"})
    has(text_of(answer, 422), "the agent outside that asks set this deadline")
    assert bot.read(made["id"])["deadline_at"] == made["deadline_at"]
