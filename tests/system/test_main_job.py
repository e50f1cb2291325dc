"""The main job through real processes over HTTP: two levels of agents, a gate, a directory, a mail server."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from config.local.http_client import request
from tests.support.people import Office, newcomer, until
from tests.support.stack import Stack

pytestmark = pytest.mark.e2e

ROUNDS = 50
DECIDERS = 8


@pytest.fixture(scope="module")
def office(sandbox: Path) -> Iterator[Office]:
    with Stack(sandbox / "main job") as stack:
        yield Office(stack)


def test_a_nested_run_has_one_account_one_role_and_one_mail(office: Office) -> None:
    run = office.start("hr_onboarding", "nested", level=4)
    waiting = office.wait(run, "suspended")
    (gate,) = waiting["gates"]
    assert (gate["kind"], gate["tool"]) == ("approval", "set_privileges")
    assert gate["path"] == ["hr_onboarding", "account_agent", "set_privileges"]
    status, document = office.stack.ask("admin", "GET", f"/api/v1/runs/{run}/continuation")
    assert status == 200
    assert set(document["frames"]) == {"0", "0.c1.0"}
    assert len(office.accounts("nested")) == 1
    assert (office.roles("nested"), office.mails("nested")) == ([], 0)

    approval = office.approval(run)
    assert approval["id"] == gate["approval"]
    assert approval["args"]["username"] == "nested"
    assert approval["args"]["security_level"] == 4
    assert office.decide("bea", approval, "approve")[0] == 200
    done = office.wait(run, "completed")
    assert "security level 4" in done["output"]
    assert office.roles("nested") == ["security-level-4"]
    assert (len(office.accounts("nested")), office.mails("nested")) == (1, 1)
    assert office.stack.ask("admin", "GET", f"/api/v1/runs/{run}/continuation")[0] == 404


def test_a_single_agent_does_the_same_job(office: Office) -> None:
    run = office.start("hr_onboarding_single", "single")
    office.wait(run, "suspended")
    assert office.decide("bea", office.approval(run), "approve")[0] == 200
    office.wait(run, "completed")
    assert (office.roles("single"), office.mails("single")) == (["security-level-3"], 1)


def test_a_denied_call_is_never_started_and_the_model_hears_why(office: Office) -> None:
    run = office.start("hr_onboarding", "denied")
    office.wait(run, "suspended")
    reason = "Level 3 needs a ticket first."
    assert office.decide("bea", office.approval(run), "deny", reason)[0] == 200
    done = office.wait(run, "completed")
    events = office.events(run)
    (gate,) = [event for event in events if event["type"] == "GateOpened"]
    place = (gate["frame"], gate["call"])
    started = [event for event in events if event["type"] == "ToolStarted"]
    assert place not in [(event["frame"], event["call"]) for event in started]
    assert office.roles("denied") == []
    (decided,) = [event for event in events if event["type"] == "GateDecided"]
    assert (decided["call"], decided["reason"]) == (gate["call"], reason)
    # The scripted model is a function of its input: its answer can only quote its conversation.
    (answer,) = [
        event["text"]
        for event in events
        if event["type"] == "ModelReplied" and event["frame"] == gate["frame"] and event["text"]
    ]
    assert reason in answer
    assert reason in done["output"]


def test_the_requester_cannot_decide_and_cyril_sees_nothing(office: Office) -> None:
    run = office.start("hr_onboarding", "foureyes")
    office.wait(run, "suspended")
    approval = office.approval(run)
    status, refused = office.decide("ada", approval, "approve")
    assert (status, refused["code"]) == (403, "requester")
    assert office.decide("admin", approval, "approve")[0] == 403
    for path in (f"runs/{run}", f"runs/{run}/journal", f"approvals/{approval['id']}"):
        assert office.stack.ask("cyril", "GET", f"/api/v1/{path}")[0] == 404
    assert office.decide("cyril", approval, "approve")[0] == 404
    assert office.stack.ask("cyril", "GET", "/api/v1/approvals")[1]["items"] == []
    assert office.stack.ask("cyril", "GET", "/api/v1/runs")[1]["items"] == []
    assert office.roles("foureyes") == []


def test_the_same_business_key_is_the_same_run(office: Office) -> None:
    body = {"agent": "hr_onboarding", "input": newcomer("once"), "business_key": "once"}
    first = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    second = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    assert (first[0], second[0]) == (201, 200)
    assert first[1]["id"] == second[1]["id"]
    other = {**body, "input": newcomer("another")}
    status, refused = office.stack.ask("ada", "POST", "/api/v1/runs", other)
    assert (status, refused["code"]) == (409, "business_key")
    office.wait(first[1]["id"], "suspended")
    assert len(office.accounts("once")) == 1


def test_a_run_without_budget_continues_after_a_grant(office: Office) -> None:
    body = {"agent": "hr_onboarding_single", "input": newcomer("short"), "budget": {"turns": 1}}
    status, run = office.stack.ask("ada", "POST", "/api/v1/runs", body)
    assert status == 201, run
    office.wait(run["id"], "suspended")
    limits = f"/api/v1/approvals?kind=limit&status=pending&run={run['id']}"
    (limit,) = office.stack.ask("bea", "GET", limits)[1]["items"]
    assert (limit["kind"], limit["sentence"]) == ("limit", "Used up: 1 of 1 turns of the run")
    decision = {"verdict": "continue", "digest": limit["digest"], "grant": {"turns": 9}}
    path = f"/api/v1/approvals/{limit['id']}/decision"
    assert office.stack.ask("ada", "POST", path, decision)[0] == 403
    assert office.stack.ask("bea", "POST", path, decision)[0] == 200
    _, uses = office.stack.ask("ada", "GET", f"/api/v1/runs/{run['id']}/budget")
    assert (uses[0]["limit"], uses[0]["allowed"]) in (("turns", "1"), ("turns", "10"))

    def asked() -> bool | None:
        found = office.stack.ask("bea", "GET", f"/api/v1/approvals?status=pending&run={run['id']}")[
            1
        ]["items"]
        return bool(found) or None

    until(asked, "the next gate of the run that goes on")
    assert office.decide("bea", office.approval(run["id"]), "approve")[0] == 200
    office.wait(run["id"], "completed")
    assert (office.roles("short"), office.mails("short")) == (["security-level-3"], 1)


def test_eight_people_decide_at_once_and_one_wins_every_time(office: Office) -> None:
    tokens = _reviewers(office)
    runs = [office.start("hr_onboarding_single", f"race{n}") for n in range(ROUNDS)]
    for run in runs:
        office.wait(run, "suspended")
        _race(office, office.approval(run), tokens)
    for run in runs:
        office.wait(run, "completed")


def _reviewers(office: Office) -> dict[str, str]:
    """Eight more reviewers: their names and tokens."""
    said = office.execute(f"""
from approvals.accounts import tokens
from approvals.accounts.people import create_person
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
for n in range({DECIDERS}):
    person = create_person(username=f"reviewer{{n}}", password="x" * 40, groups=[Group.REVIEWERS])
    print("reviewer", n, tokens.create(person, ALL_SCOPES)[1])
""")
    lines = [line.split() for line in said.splitlines() if line.startswith("reviewer")]
    return {f"reviewer{number}": token for _, number, token in lines}


def _race(office: Office, approval: dict[str, Any], tokens: dict[str, str]) -> None:
    barrier = threading.Barrier(len(tokens))
    answers: dict[str, tuple[int, Any]] = {}

    def decide(name: str, token: str, verdict: str) -> None:
        body = {"verdict": verdict, "digest": approval["digest"], "reason": "a race"}
        barrier.wait()
        path = f"/api/v1/approvals/{approval['id']}/decision"
        answers[name] = request(office.stack.url, "POST", path, token=token, body=body)

    threads = [
        threading.Thread(target=decide, args=[name, token, ("approve", "deny")[n % 2]])
        for n, (name, token) in enumerate(tokens.items())
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = [name for name, (status, _) in answers.items() if status == 200]
    for name, (status, said) in answers.items():
        if name != winner:
            assert (status, said["code"], said["decided_by"]) == (409, "already_decided", winner)
