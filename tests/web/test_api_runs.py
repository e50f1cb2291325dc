"""The operations of the API on runs."""

from uuid import UUID, uuid4

import pytest
from django.test import Client

from runtime.core.continuation import RunStatus
from runtime.models import Run
from tests.support.api_client import Caller
from tests.support.office import NEWCOMER, Office

BODY = {"agent": "hr_onboarding", "input": NEWCOMER, "business_key": "newhire-2026"}


def test_starting_a_run(ada_api: Caller, office: Office, published: None) -> None:
    answer = ada_api.post("/runs", BODY)
    assert answer.status_code == 201
    run = answer.json()
    assert run["input"] == NEWCOMER
    assert (run["agent"], run["status"], run["requester"]) == ("hr_onboarding", "queued", "ada")
    assert (run["output"], run["business_key"], run["gates"]) == (None, "newhire-2026", [])
    assert office.advance(UUID(run["id"])).status == RunStatus.SUSPENDED


def test_the_same_key_and_input_is_the_same_run(
    ada_api: Caller, office: Office, published: None
) -> None:
    first, second = ada_api.post("/runs", BODY), ada_api.post("/runs", BODY)
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json()["id"] == second.json()["id"]


def test_the_same_key_with_another_input_is_a_conflict(
    ada_api: Caller, office: Office, published: None
) -> None:
    ada_api.post("/runs", BODY)
    answer = ada_api.post("/runs", {**BODY, "input": {**NEWCOMER, "security_level": 1}})
    assert (answer.status_code, answer.json()["code"]) == (409, "business_key")
    assert Run.objects.count() == 1


def test_keys_of_different_people_do_not_meet(
    ada_api: Caller, admin_api: Caller, office: Office, published: None
) -> None:
    assert ada_api.post("/runs", BODY).status_code == 201
    assert admin_api.post("/runs", BODY).status_code == 201


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"agent": "stranger"}, "agent"),
        ({"agent": 7}, "agent"),
        ({"agent": ""}, "agent"),
        ({"agent": "nul\x00"}, "agent"),
        ({"agent": None}, "agent"),
        ({"business_key": ""}, "business_key"),
        ({"business_key": "nul\x00"}, "business_key"),
        ({"business_key": "\ud800"}, "business_key"),
        ({"business_key": "k" * 201}, "business_key"),
        ({"input": {**NEWCOMER, "username": 7}}, "input.username"),
        ({"input": {**NEWCOMER, "username": "nul\x00"}}, "input.username"),
        ({"input": {**NEWCOMER, "username": "\ud800"}}, "input.username"),
        ({"input": {**NEWCOMER, "security_level": 2**60}}, "input.security_level"),
        ({"input": {**NEWCOMER, "security_level": float("nan")}}, "input.security_level"),
        ({"input": {"username": "newhire"}}, "input.full_name"),
        ({"bussiness_key": "typo"}, "bussiness_key"),
    ],
)
def test_an_invalid_field_is_named(
    ada_api: Caller, office: Office, published: None, change: dict[str, object], field: str
) -> None:
    answer = ada_api.post("/runs", {**BODY, **change})
    assert (answer.status_code, answer.json()["field"]) == (422, field)


def test_all_that_is_wrong_with_an_input_is_named(
    ada_api: Caller, office: Office, published: None
) -> None:
    said = ada_api.post("/runs", {**BODY, "input": {"username": 3}}).json()
    found = {said["field"], *(other["field"] for other in said["others"])}
    assert {"input.full_name", "input.username"} <= found
    assert all(other["detail"] for other in said["others"])
    assert not Run.objects.exists()


def test_starting_takes_the_right_and_the_scope(
    bea_api: Caller, office: Office, published: None, narrow_api: Caller
) -> None:
    answer = bea_api.post("/runs", BODY)
    assert (answer.status_code, answer.json()["code"]) == (403, "not_eligible")
    answer = narrow_api.post("/runs", BODY)
    assert (answer.status_code, answer.json()["code"]) == (403, "scope")


def test_a_suspended_run_names_its_gate_and_its_approval(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    run = ada_api.get(f"/runs/{suspended}").json()
    (gate,) = run["gates"]
    request = office.request(suspended)
    assert run["status"] == "suspended"
    assert gate["id"] == str(request.gate)
    assert gate["approval"] == str(request.id)
    assert (gate["kind"], gate["state"]) == ("approval", "open")
    assert (gate["frame"], gate["call"], gate["tool"]) == ("0.c1.0", "c2.0", "set_privileges")
    assert gate["path"] == ["hr_onboarding", "account_agent", "set_privileges"]


def test_a_gate_in_doubt_names_its_request(ada_api: Caller, office: Office) -> None:
    run = office.in_doubt()
    (gate,) = ada_api.get(f"/runs/{run}").json()["gates"]
    assert (gate["kind"], gate["tool"]) == ("in_doubt", "send_welcome_mail")
    assert gate["approval"] == str(office.in_doubt_request(run).id)


def test_a_finished_run_has_its_output(ada_api: Caller, office: Office, suspended: UUID) -> None:
    office.approve(suspended)
    run = ada_api.get(f"/runs/{suspended}").json()
    assert (run["status"], run["output"]) == ("completed", "New Hire is on board.")


def test_the_list_is_filtered_and_paged(ada_api: Caller, office: Office) -> None:
    runs = [str(office.start(key=f"key-{number}")) for number in range(3)]
    page = ada_api.get("/runs?limit=2").json()
    assert [run["id"] for run in page["items"]] == [runs[2], runs[1]]
    rest = ada_api.get(f"/runs?limit=2&cursor={page['next']}").json()
    assert [run["id"] for run in rest["items"]] == [runs[0]]
    assert rest["next"] is None
    only = ada_api.get("/runs?business_key=key-1").json()["items"]
    assert [run["id"] for run in only] == [runs[1]]
    assert ada_api.get("/runs?business_key=other").json() == {"items": [], "next": None}


@pytest.mark.parametrize("query", ["limit=0", "limit=201", "limit=x", "cursor=x"])
def test_a_list_refuses_invalid_parameters(ada_api: Caller, query: str) -> None:
    answer = ada_api.get(f"/runs?{query}")
    assert (answer.status_code, answer.json()["field"]) == (422, query.partition("=")[0])


def test_only_readable_runs_are_there(
    cyril_api: Caller, bea_api: Caller, office: Office, suspended: UUID
) -> None:
    assert cyril_api.get("/runs").json()["items"] == []
    for path in ("", "/journal", "/continuation"):
        answer = cyril_api.get(f"/runs/{suspended}{path}")
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
    assert len(bea_api.get("/runs").json()["items"]) == 1


def test_the_journal_lists_entries_in_order(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    page = ada_api.get(f"/runs/{suspended}/journal?limit=2").json()
    items = page["items"]
    while page["next"]:
        page = ada_api.get(f"/runs/{suspended}/journal?limit=2&cursor={page['next']}").json()
        items += page["items"]
    assert [item["position"] for item in items] == list(range(1, len(items) + 1))
    events = [event for item in items for event in item["events"]]
    assert (events[0]["type"], events[0]["business_key"]) == ("RunStarted", None)
    assert {event["type"] for event in events} >= {"FrameOpened", "ToolReturned", "GateOpened"}
    gate = next(event for event in events if event["type"] == "GateOpened")
    assert (gate["frame"], gate["call"]) == ("0.c1.0", "c2.0")


def test_the_continuation_is_for_admins(
    ada_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = ada_api.get(f"/runs/{suspended}/continuation")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_eligible")
    document = admin_api.get(f"/runs/{suspended}/continuation").json()
    assert (document["run"], document["paused"]) == (str(suspended), None)
    assert set(document["frames"]) == {"0", "0.c1.0"}


def test_a_run_is_verified_for_admins(
    ada_api: Caller, admin_api: Caller, office: Office, suspended: UUID
) -> None:
    answer = ada_api.get(f"/runs/{suspended}/verification")
    assert (answer.status_code, answer.json()["code"]) == (403, "not_eligible")
    document = admin_api.get(f"/runs/{suspended}/verification").json()
    assert document["run"] == str(suspended)
    assert (document["status"], document["sound"], document["findings"]) == ("suspended", True, [])
    Run.objects.filter(id=suspended).update(head="x")
    document = admin_api.get(f"/runs/{suspended}/verification").json()
    assert [finding["subject"] for finding in document["findings"]] == ["head"]
    assert not document["sound"]


def test_a_run_that_is_not_suspended_has_no_continuation(
    admin_api: Caller, office: Office, suspended: UUID
) -> None:
    office.approve(suspended)
    assert admin_api.get(f"/runs/{suspended}/continuation").status_code == 404


def test_an_unknown_object_is_not_found(admin_api: Caller) -> None:
    for path in (f"/runs/{uuid4()}", "/runs/nonsense", f"/runs/{uuid4()}/journal"):
        answer = admin_api.get(path)
        assert (answer.status_code, answer.json()["code"]) == (404, "not_found")


def test_a_browser_session_reads_too(ada: Client, suspended: UUID) -> None:
    assert ada.get(f"/api/v1/runs/{suspended}").json()["id"] == str(suspended)
