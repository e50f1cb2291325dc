"""Budgets in pages and API: limit gates and grants, a stricter budget for one run, and the usage."""

import json
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from pytest_django import Settings

from approvals.models import Approval, AuditEntry
from runtime.core.values.budgets import BudgetLimits
from runtime.models import Run
from tests.support.api_client import Caller, field_of
from tests.support.engine import events
from tests.support.office import NEWCOMER, Office
from tests.support.pages import has, send, shows, text_of

BODY = {"agent": "hr_onboarding", "input": NEWCOMER}


@pytest.fixture
def short(office: Office) -> Approval:
    """A run that called the account agent, whose model has not been called yet."""
    return office.short(BudgetLimits(turns=1, calls=9))


def _event(run: UUID, kind: str) -> dict[str, Any]:
    (found,) = [event for event in events(run) if event["type"] == kind]
    return found


def test_the_page_names_exhausted_limits(bea: Client, bea_api: Caller, short: Approval) -> None:
    used = "The run reached its limit: 1 of 1 turns"
    more = ("More turns", 'name="grant.turns" value="1"')
    turns = "<dt>Turns of <bdi>the run</bdi></dt>"
    hides = ["not in the schema", "limit&quot;:", "More tool calls"]
    shows(bea, short, used, "Nothing new starts in this run", *more, turns, hides=hides)
    shows(bea, short, "<dd>1 used, 1 allowed</dd>")
    shows(bea, "/inbox/", used)
    of_turns = '1 of 1 <progress max="100" value="100" aria-label="100 % of turns">'
    unpriced = "and 1 reply without a known price"
    shows(bea, short.run_id, of_turns, unpriced, "The run needs more budget")
    answer = bea_api.get(f"/runs/{short.run_id}/budget").json()
    uses = [(use["frame"], use["limit"], use["used"], use["allowed"]) for use in answer]
    assert uses[:2] == [(None, "turns", "1", "1"), (None, "calls", "0", "9")]
    assert uses[2:] == [(None, "tokens", "0", None), (None, "usd", "0.00", None)]


def test_a_grant_is_audited_and_journaled(bea: Client, short: Approval, office: Office) -> None:
    assert send(bea, short, "continue", **{"grant.turns": "unlimited"}).status_code == 302
    run = office.advance(short.run_id).id
    assert _event(run, "BudgetGranted").items() >= {"by": "bea", "amounts": {"turns": None}}.items()
    audited = AuditEntry.objects.get(run=run, act="approved")
    assert json.loads(audited.detail)["granted"] == {"turns": None}


def test_an_invalid_grant_is_named_and_decides_nothing(bea: Client, short: Approval) -> None:
    enter = "Enter a number of turns, or unlimited."
    for form, problem in (
        ({}, "the grant must grant some turns"),
        ({"turns": "a few"}, f"more turns must be a number. {enter}"),
        ({"turns": "5", "calls": "5"}, "more tool calls was not reached"),
    ):
        grant = {f"grant.{name}": amount for name, amount in form.items()}
        page = text_of(send(bea, short, "continue", **grant, reason="Once more."), 422)
        has(page, f"Not decided: {problem}", f'value="{form.get("turns", "")}"', "Once more.")
    short.refresh_from_db()
    assert short.status == "pending"


def test_the_api_grants_more(bea_api: Caller, short: Approval, office: Office) -> None:
    path = f"/approvals/{short.id}/decision"
    verdict = {"verdict": "continue", "digest": short.approval_digest}
    assert field_of(bea_api.post(path, verdict)) == (422, "grant")
    assert field_of(bea_api.post(path, {**verdict, "grant": {"usd": 1}})) == (422, "grant.usd")
    assert bea_api.post(path, {**verdict, "grant": {"turns": 20}}).status_code == 200
    call = office.request(office.advance(short.run_id).id)
    body = {"verdict": "approve", "digest": call.approval_digest, "grant": {"turns": 1}}
    answer = bea_api.post(f"/approvals/{call.id}/decision", body)
    assert field_of(answer) == (422, "grant")  # nothing was reached


def test_the_api_limits_a_run(ada_api: Caller, published: None, settings: Settings) -> None:
    settings.SIGNOFF_BUDGET = BudgetLimits(turns=10, tokens=500)  # the default
    for wrong, field in ((7, "budget"), ({"turns": 11}, "budget.turns")):
        assert field_of(ada_api.post("/runs", {**BODY, "budget": wrong})) == (422, field)
    budget = {"turns": 1, "usd": "2.50", "depth": None}
    run = UUID(ada_api.post("/runs", {**BODY, "budget": budget}).json()["id"])
    limits = _event(run, "RunStarted")["budget"]
    assert (limits["turns"], limits["micros"], limits["tokens"]) == (1, 2_500_000, 500)


def test_the_form_limits_a_run(ada: Client, published: None, settings: Settings) -> None:
    settings.SIGNOFF_BUDGET = BudgetLimits(turns=10)
    path = "/agents/hr_onboarding/start/"
    shows(ada, path, "at most 10, also the default")
    form = {f"in.{name}": str(value) for name, value in NEWCOMER.items()}
    refused = ada.post(path, {**form, "budget.turns": "11"})
    has(text_of(refused, 422), "<bdi>Turns</bdi> must be at most 10 here.")
    assert ada.post(path, {**form, "budget.turns": "4", "budget.usd": "0.75"}).status_code == 302
    limits = _event(Run.objects.get().id, "RunStarted")["budget"]
    assert (limits["turns"], limits["micros"]) == (4, 750_000)


def test_an_agents_own_limits_are_listed_beside_the_runs(bea_api: Caller, office: Office) -> None:
    office.effects.budgets["account_agent"] = BudgetLimits(calls=5, depth=3, seconds=60)
    run = office.start()
    uses = [use for use in bea_api.get(f"/runs/{run}/budget").json() if use["frame"]]
    assert {(use["frame"], use["agent"]) for use in uses} == {("0.c1.0", "account_agent")}
    allowed = {use["limit"]: use["allowed"] for use in uses}
    assert allowed == {"calls": "5", "seconds": "60", "depth": "3"}
    assert {use["limit"]: use["used"] for use in uses}["calls"] == "1"
