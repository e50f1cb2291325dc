"""The operations of the API on runs."""

from uuid import UUID

from runtime.core.continuation import RunStatus
from runtime.models import Run
from tests.support.api_client import Caller, code_of, field_of
from tests.support.office import NEWCOMER, Office

BODY = {"agent": "hr_onboarding", "input": NEWCOMER, "business_key": "newhire-2026"}


def test_starting_a_run(
    ada_api: Caller, admin_api: Caller, office: Office, published: None
) -> None:
    """The same key and input is the same run, for each person."""
    answer = ada_api.post("/runs", BODY)
    assert answer.status_code == 201
    run = answer.json()
    assert run["input"] == NEWCOMER
    assert (run["agent"], run["status"], run["requester"]) == ("hr_onboarding", "queued", "ada")
    assert (run["output"], run["business_key"], run["gates"]) == (None, "newhire-2026", [])
    again = ada_api.post("/runs", BODY)
    assert (again.status_code, again.json()["id"]) == (200, run["id"])
    other = ada_api.post("/runs", {**BODY, "input": {**NEWCOMER, "security_level": 1}})
    assert code_of(other) == (409, "business_key")
    assert admin_api.post("/runs", BODY).status_code == 201
    assert Run.objects.count() == 2
    assert office.advance(UUID(run["id"])).status == RunStatus.SUSPENDED


def test_an_invalid_field_is_named(ada_api: Caller, office: Office, published: None) -> None:
    for change, field in (
        ({"agent": "stranger"}, "agent"),
        ({"agent": "nul\x00"}, "agent"),
        ({"business_key": ""}, "business_key"),
        ({"business_key": "\ud800"}, "business_key"),
        ({"business_key": "k" * 201}, "business_key"),
        ({"input": {**NEWCOMER, "username": "nul\x00"}}, "input.username"),
        ({"input": {**NEWCOMER, "security_level": 2**60}}, "input.security_level"),
        ({"input": {**NEWCOMER, "security_level": float("nan")}}, "input.security_level"),
    ):
        assert field_of(ada_api.post("/runs", {**BODY, **change})) == (422, field), change
    said = ada_api.post("/runs", {**BODY, "input": {"username": 3}}).json()
    found = {said["field"], *(other["field"] for other in said["others"])}
    assert {"input.full_name", "input.username"} <= found
    assert not Run.objects.exists()


def test_a_suspended_run_names_its_gate_and_its_approval(
    ada_api: Caller, office: Office, suspended: UUID
) -> None:
    run = ada_api.get(f"/runs/{suspended}").json()
    (gate,) = run["gates"]
    request = office.request(suspended)
    assert run["status"] == "suspended"
    assert (gate["id"], gate["approval"]) == (str(request.gate), str(request.id))
    assert (gate["kind"], gate["state"]) == ("approval", "open")
    assert (gate["frame"], gate["call"], gate["tool"]) == ("0.c1.0", "c2.0", "set_privileges")
    assert gate["path"] == ["hr_onboarding", "account_agent", "set_privileges"]
    office.approve(suspended)
    run = ada_api.get(f"/runs/{suspended}").json()
    assert (run["status"], run["output"]) == ("completed", "New Hire is on board.")
    (gate,) = ada_api.get(f"/runs/{(doubtful := office.in_doubt())}").json()["gates"]
    assert (gate["kind"], gate["tool"]) == ("in_doubt", "send_welcome_mail")
    assert gate["approval"] == str(office.in_doubt_request(doubtful).id)


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
    for query in ("limit=0", "limit=201", "cursor=x"):
        assert field_of(ada_api.get(f"/runs?{query}")) == (422, query.partition("=")[0])


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


def test_admins_read_and_verify_the_continuation(
    admin_api: Caller, office: Office, suspended: UUID
) -> None:
    path = f"/runs/{suspended}/continuation"
    document = admin_api.get(path).json()
    assert (document["run"], document["paused"]) == (str(suspended), None)
    assert set(document["frames"]) == {"0", "0.c1.0"}
    verified = admin_api.get(f"/runs/{suspended}/verification").json()
    assert verified["run"] == str(suspended)
    assert (verified["status"], verified["sound"], verified["findings"]) == ("suspended", True, [])
    Run.objects.filter(id=suspended).update(head="x")
    verified = admin_api.get(f"/runs/{suspended}/verification").json()
    assert [finding["subject"] for finding in verified["findings"]] == ["head"]
    assert not verified["sound"]
