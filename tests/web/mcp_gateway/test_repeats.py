"""Which call is the same as an earlier one: after a disconnect, from two clients at once, and raced."""

import json
from typing import Any
from uuid import UUID

import httpx2
import pytest
from django.contrib.auth.models import User
from django.test import Client

from approvals.decisions import gateway_calls
from approvals.decisions.gateway_calls import COLLECTED, build_business_key
from approvals.models import AuditEntry
from approvals.people import tokens
from approvals.people.accounts import set_groups
from approvals.rights.principals import ALL_SCOPES, Scope
from approvals.rules.policy import Group
from runtime.control.verification import verify
from runtime.errors import NoSuchRun
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.store import pool
from tests.support.gateway_desk import TEA, Desk
from tests.support.mcp_server import Tickets
from tests.support.people import until
from tests.support.seeds import Cast
from tests.support.threads import together
from tests.web.mcp_gateway.conftest import SECONDS, Assistants

AT_ONCE = 6


@pytest.fixture
def ada(desk: Desk, cast: Cast) -> Actor:
    return _bearer(cast)


def _bearer(cast: Cast) -> Actor:
    token, _ = tokens.create(cast.ada, ALL_SCOPES)
    return Actor(person="ada", token=str(token.public_id))


def _ask(actor: Actor, arguments: dict[str, Any] = TEA) -> UUID:
    return gateway_calls.ask(
        gateway="tickets", tool="Create-Ticket", arguments=arguments, actor=actor
    )


def _message(**params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}


def test_a_client_that_disconnects_finds_its_call_again(
    assistants: Assistants, desk: Desk, upstream: Tickets, cast: Cast
) -> None:
    ada = assistants.connect(cast.ada)
    call = _message(name="Create-Ticket", arguments=TEA)
    with (
        httpx2.Client(headers=ada.headers, trust_env=False, timeout=1.0) as leaving,
        pytest.raises(httpx2.ReadTimeout),
    ):
        leaving.post(assistants.url, json=call)
    asked = desk.ask_people()
    assert desk.decide(asked) == "completed"
    assert not AuditEntry.objects.filter(run=asked.run_id, act=COLLECTED).exists()
    assert ada.call().result(SECONDS).content[0].text == "made Tea"
    assert (Run.objects.count(), len(upstream.calls)) == (1, 1)


def test_two_clients_with_one_token_wait_for_one_call(
    assistants: Assistants, desk: Desk, upstream: Tickets, cast: Cast
) -> None:
    """Neither asks again when the other has collected the result first."""
    ada = assistants.connect(cast.ada)
    calls = [ada.call(), ada.call()]
    from config import asgi

    until(lambda: asgi.live_server.count_waiting() == 2 or None, "two calls to wait")
    desk.decide(desk.ask_people())
    assert [call.result(SECONDS).content[0].text for call in calls] == ["made Tea"] * 2
    assert (Run.objects.count(), len(upstream.calls)) == (1, 1)
    collected = AuditEntry.objects.filter(act=COLLECTED)
    until(lambda: collected.exists() or None, "the result to be collected")


def test_the_same_call_many_times_at_once_is_one_run_before_and_after_its_result(
    desk: Desk, ada: Actor, cast: Cast
) -> None:
    runs: list[UUID] = []
    together([lambda: runs.append(_ask(ada))] * AT_ONCE)
    (first,) = set(runs)
    with pytest.raises(NoSuchRun):  # it has not ended
        gateway_calls.collect(gateway="tickets", run=first, actor=ada)
    asked = desk.ask_people()
    assert _ask(ada) == first
    desk.decide(asked)
    assert _ask(ada) == first
    together([lambda: gateway_calls.collect(gateway="tickets", run=first, actor=ada)] * AT_ONCE)
    assert AuditEntry.objects.filter(run=first, act=COLLECTED).count() == 1
    runs.clear()
    together([lambda: runs.append(_ask(ada))] * AT_ONCE)
    (second,) = set(runs)
    assert second != first
    assert not {_ask(_bearer(cast)), _ask(ada, {"title": "Milk"})} & {first, second}
    assert verify(first).is_consistent


def test_an_earlier_call_is_found_by_the_index_of_business_keys(ada: Actor) -> None:
    _ask(ada)
    query = Run.objects.filter(
        agent="tickets",
        requester="ada",
        business_key__range=(build_business_key("sha256:0", 0), build_business_key("sha256:0", 9)),
    ).order_by("-business_key")
    with pool.open_own() as own:
        own.execute("SET enable_seqscan = off")
        sql, parameters = query.query.sql_with_params()
        plan = "\n".join(row[0] for row in own.execute(f"EXPLAIN {sql}", parameters).fetchall())
    assert "run_business_key" in plan
    assert "Sort" not in plan


def test_a_call_is_its_callers_alone(ada: Actor, cast: Cast) -> None:
    """No right to start, no token, no such gateway, and a handle of another person."""
    run = _ask(ada)

    def send(person: User, *, without: str = "", path: str = "tickets", **params: Any) -> Any:
        _, secret = tokens.create(person, ALL_SCOPES - {without})
        client = Client(headers={"authorization": f"Bearer {secret}"})
        body = json.dumps(_message(**params))
        answer = client.post(f"/api/mcp/{path}/", body, content_type="application/json")
        return answer.json().get("code") or answer.json()

    call: dict[str, Any] = {"name": "Create-Ticket", "arguments": TEA}
    assert send(cast.cyril, **call) == "not_eligible"
    assert send(cast.ada, without=Scope.RUNS_START, **call) == "scope"
    assert send(cast.ada, path="hr_onboarding", **call) == "not_found"
    assert Client().post("/api/mcp/tickets/").status_code == 401
    assert Client().get("/api/mcp/tickets/").status_code == 405
    set_groups("cyril", {Group.REQUESTERS}, actor=None)
    handle: dict[str, Any] = {"name": "approval_result", "arguments": {"handle": str(run)}}
    for wrong in (handle, {**handle, "arguments": {"handle": "x"}}, {"name": "drop"}):
        assert send(cast.cyril, **wrong)["error"]["code"] == -32602
    assert send(cast.ada, name="Create-Ticket", arguments={"title": 2**60})["error"]
    assert Run.objects.count() == 1
