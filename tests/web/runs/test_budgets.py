"""Limits, waits and suspicion: what holds a run up."""

import json
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import Settings

from approvals.models import Approval, AuditEntry
from runtime.core.values.budgets import BudgetLimits
from runtime.core.values.enums import FailureCause
from runtime.models import LostLease, Run
from runtime.ports.effects import ModelFailure, Outcome, RateLimited
from tests.config.test_metrics import families, value
from tests.support.api_client import Caller, field_of
from tests.support.engine import events, pause
from tests.support.fake_ports import say
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


# Rate limits


MODEL = "openai:<a>"
SHOWN = "openai:&lt;a&gt;"
CALL = {"frame": "0", "agent": "hr_onboarding", "model": MODEL}


def _limited(office: Office, *outcomes: Outcome) -> UUID:
    """A run whose model gives these outcomes and then answers, up to its first wait."""
    left = [*outcomes, say("done")]
    office.effects.agents["hr_onboarding"] = lambda request: left.pop(0)
    return office.start()


def _refused(retry_after: float) -> ModelFailure:
    return ModelFailure(
        error="busy", retryable=True, retry_after=retry_after, cause=FailureCause.LIMIT, model=MODEL
    )


def test_a_wait_for_a_rate_limit_is_shown_with_its_model_time_and_tries(
    office: Office, ada: Client, admin: Client, ada_api: Caller
) -> None:
    at = timezone.now().replace(microsecond=0) + timedelta(minutes=5)
    run = _limited(office, _refused(0.0), RateLimited(model=MODEL, until=at, queue_number=4))
    found = ada_api.get(f"/runs/{run}").json()
    (wait,) = found["rate_limits"]
    assert {**wait, **CALL, "tries": 2} == wait
    assert datetime.fromisoformat(wait["until"]) == at
    assert found["status_text"].startswith(f"{MODEL} waits for the rate limit of its provider")
    assert ada_api.get("/runs").json()["items"][0]["rate_limits"] == [wait]
    shows(ada, run, "Waits for a rate limit", SHOWN, "2 times", hides=["of its model</h2>"])
    shows(ada, "/runs/", f"{SHOWN}</bdi> waits for the rate limit", "put off 2 times")
    shows(admin, "/overview/", "Waiting for a rate limit", SHOWN, "1 call waits")
    pause(run)
    office.advance(run)
    assert ada_api.get(f"/runs/{run}").json()["rate_limits"] == []
    shows(admin, "/overview/", hides=[SHOWN])


def test_a_refused_request_is_one_try_and_a_reply_ends_the_wait(
    office: Office, ada_api: Caller
) -> None:
    run = _limited(office, _refused(30.0))
    assert [one["tries"] for one in ada_api.get(f"/runs/{run}").json()["rate_limits"]] == [1]
    run = _limited(office, _refused(0.0))
    found = ada_api.get(f"/runs/{run}").json()
    assert (found["status"], found["rate_limits"]) == ("completed", [])
    assert Run.objects.get(id=run).limited is None


# Suspected runs


AFTER = "after two workers in a row died or lost it"


def test_a_suspected_run_says_its_number_in_the_queue(
    office: Office, ada: Client, admin: Client, ada_api: Caller
) -> None:
    first, second, tried, ordinary = (office.start() for _ in range(4))
    for seconds, run in enumerate((first, second, tried)):
        due = timezone.now() + timedelta(seconds=seconds)
        Run.objects.filter(id=run).update(status="running", isolated=True, due_at=due)
    Run.objects.filter(id=tried).update(owner=uuid4())
    texts = {run["id"]: run["status_text"] for run in ada_api.get("/runs").json()["items"]}
    assert texts == {
        str(first): f"waits to be tried in another process, {AFTER}: number 1 of 2",
        str(second): f"waits to be tried in another process, {AFTER}: number 2 of 2",
        str(tried): f"is tried in another process, {AFTER}",
        str(ordinary): None,
    }
    assert ada_api.get(f"/runs/{second}").json()["status_text"] == texts[str(second)]
    shows(ada, second, "Waits to be tried, number 2 of 2")
    shows(ada, tried, "Is being tried in another process")
    shows(ada, ordinary, hides=["to be tried", "being tried"])
    shows(ada, "/runs/", f"{AFTER}: number 1 of 2")
    shows(admin, "/overview/", "</span> wait to be tried", "</span> is being tried")
    measures = families()
    assert value(measures, "runs_suspected", state="waiting") == 2
    assert value(measures, "runs_suspected", state="tried") == 1


def test_a_quarantined_run_is_not_counted_as_suspected(office: Office, admin: Client) -> None:
    """Its page says with how many others it was in each process that it lost."""
    run, worker = office.start(), uuid4()
    Run.objects.filter(id=run).update(status="quarantined", isolated=True, losses=5, reason="died")
    for lost, process in ((run, worker), (uuid4(), worker), (uuid4(), worker), (run, uuid4())):
        LostLease.objects.create(run_id=lost, worker=process, position=1, isolated=False)
    page = shows(admin, run, "with 2 other runs", "alone in its process", hides=["being tried"])
    assert page.index("with 2 other runs") < page.index("alone in its process")
    shows(admin, "/overview/", hides=["to be tried"])
    Run.objects.filter(id=run).update(losses=4, reason="its journal does not verify")
    shows(admin, run, hides=["with 2 other runs"])
