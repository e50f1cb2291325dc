"""Agents of other frameworks, with the unmodified package `agentapprovalprotocol`, against a running installation."""

import pytest

from tests.interop.conftest import Desk, ForeignAgent
from tests.interop.lossy_proxy import proxy

pytestmark = pytest.mark.e2e

NOTE = "Not on a Friday."


def test_approve(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(5)
    (approval,) = desk.wait(agent.name)
    desk.decide(approval, "approve")
    assert "paid 5" in agent.results()[0]
    assert plan.payments == [5]
    request = agent.request("GET", approval)
    assert (request["status"], request["arguments"]) == ("approved", {"amount": 5})
    assert request["consumption"]["outcome"]["status"] == "succeeded"


def test_deny_with_a_note(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(5)
    (approval,) = desk.wait(agent.name)
    desk.decide(approval, "deny", NOTE)
    assert NOTE in agent.results()[0]
    assert plan.payments == []


def test_expiry(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(5, timeout="2s")
    assert "expired" in agent.results()[0]
    assert plan.payments == []
    (approval,) = desk.wait(agent.name, status="expired")
    assert agent.request("GET", approval)["status"] == "expired"


def test_cancel(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(5)
    (approval,) = desk.wait(agent.name)
    assert agent.request("DELETE", approval)["status"] == "cancelled"
    assert "cancelled" in agent.results()[0]
    assert plan.payments == []


def test_two_gates_at_once(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(7, 8)
    first, second = desk.wait(agent.name, count=2)
    desk.decide(second, "deny", NOTE)
    desk.decide(first, "approve")
    (paid, denied) = agent.results()
    assert "paid 7" in paid
    assert NOTE in denied
    assert plan.payments == [7]


def test_lost_answer_of_create(desk: Desk, agent: ForeignAgent) -> None:
    _pay_with_a_lost_answer(desk, agent, "POST /api/aap/v1/requests")


def test_lost_answer_of_consume(desk: Desk, agent: ForeignAgent) -> None:
    _pay_with_a_lost_answer(desk, agent, "POST /api/aap/v1/requests/[^/]*/consume")


def _pay_with_a_lost_answer(desk: Desk, agent: ForeignAgent, losing: str) -> None:
    with proxy(desk.url, losing) as (lossy, address):
        plan = agent.begin(5, url=f"{address}/api/aap")
        (approval,) = desk.wait(agent.name)
        desk.decide(approval, "approve")
        assert "paid 5" in agent.results()[0]
        assert len(lossy.lost) == 1
    assert plan.payments == [5]
    assert len(desk.asked(agent.name, "approved")) == 1
    assert desk.asked(agent.name, "pending") == []


def test_killed_while_it_waits(desk: Desk, agent: ForeignAgent) -> None:
    plan = agent.begin(5)
    (approval,) = desk.wait(agent.name)
    agent.programs.replace()
    desk.decide(approval, "approve")
    agent.programs.current.begin(plan)
    assert "paid 5" in agent.results()[0]
    assert plan.payments == [5]
    assert len(desk.asked(agent.name, "approved")) == 1
    assert desk.asked(agent.name, "pending") == []
