"""The operations of the API on runs; its errors have one shape; its authentication."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any
from uuid import UUID

import psycopg
import pytest
from django.db import OperationalError
from django.test import Client

from approvals.errors import AlreadyDecided
from config.api import api
from runtime import errors
from runtime.core.values.errors import NewerSchema, NotJson
from runtime.errors import Forbidden, InvalidInput, UnknownAgent
from runtime.models import Run
from runtime.reads import run_rows as run_queries
from tests.support.api_client import Caller, code_of, field_of
from tests.support.office import NEWCOMER, Office
from tests.support.pages import shows
from tests.support.seeds import Cast

BODY = {"agent": "hr_onboarding", "input": NEWCOMER, "business_key": "newhire-2026"}


def test_starting_runs(ada_api: Caller, admin_api: Caller, published: None) -> None:
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


def test_an_invalid_field_is_named(ada_api: Caller, office: Office, published: None) -> None:
    for change, field in (
        ({"agent": "stranger"}, "agent"),
        ({"business_key": ""}, "business_key"),
        ({"business_key": "\ud800"}, "business_key"),
        ({"business_key": "k" * 201}, "business_key"),
        ({"input": {**NEWCOMER, "username": "nul\x00"}}, "input.username"),
        ({"input": {**NEWCOMER, "security_level": 2**60}}, "input.security_level"),
    ):
        assert field_of(ada_api.post("/runs", {**BODY, **change})) == (422, field), change
    said = ada_api.post("/runs", {**BODY, "input": {"username": 3}}).json()
    found = {said["field"], *(other["field"] for other in said["others"])}
    assert {"input.full_name", "input.username"} <= found
    assert not Run.objects.exists()


def test_a_suspended_run_names_its_gate(ada_api: Caller, office: Office, suspended: UUID) -> None:
    run = ada_api.get(f"/runs/{suspended}").json()
    (gate,) = run["gates"]
    approval = office.request(suspended)
    ids = {"id": str(approval.gate), "approval": str(approval.id)}
    call = {"frame": "0.c1.0", "call": "c2.0", "tool": "set_privileges"}
    path = ["hr_onboarding", "account_agent", "set_privileges"]
    told = {**ids, **call, "kind": "approval", "state": "open", "path": path}
    assert (run["status"], gate) == ("suspended", gate | told)
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
    for limit in (0, 201):
        assert field_of(ada_api.get(f"/runs?limit={limit}")) == (422, "limit")


def test_the_journal_is_in_order(ada_api: Caller, office: Office, suspended: UUID) -> None:
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


def test_admins_verify_a_run(admin_api: Caller, suspended: UUID) -> None:
    sound = {"status": "suspended", "sound": True, "findings": []}
    found = admin_api.get(f"/runs/{suspended}/verification").json()
    assert found == found | sound
    Run.objects.filter(id=suspended).update(head="x")
    found = admin_api.get(f"/runs/{suspended}/verification").json()
    assert (found["sound"], [one["subject"] for one in found["findings"]]) == (False, ["head"])


pytestmark = pytest.mark.django_db

_NO_AGENT = "There is no agent with this name."
_UNVERIFIED = "The stored data cannot be verified"
_OTHERS = {"others": [{"field": "c", "detail": "d"}]}


def _shape(answer: Any) -> tuple[int, str]:
    assert isinstance(answer.json()["detail"], str)
    return code_of(answer)


def test_a_wrong_token_is_unauthenticated(bea: Client) -> None:
    headers = ("Bearer", "Bearer ", "Bearer sgn_0_0", "Basic eDp5", "x")
    for client, header in [*((Client(), header) for header in headers), (bea, "Bearer sgn_0_0")]:
        answer = client.get("/api/v1/runs", headers={"authorization": header})
        assert _shape(answer) == (401, "unauthenticated")
        assert answer["WWW-Authenticate"] == "Bearer"


def test_a_session_needs_the_csrf_token_to_write(cast: Cast) -> None:
    browser = Client(enforce_csrf_checks=True)
    path, kind = "/api/v1/runs", "application/json"
    assert _shape(browser.post(path, {}, content_type=kind)) == (401, "unauthenticated")
    browser.force_login(cast.ada)
    assert _shape(browser.post(path, {}, content_type=kind)) == (403, "csrf")
    assert browser.get(path).status_code == 200


def test_an_unknown_address_or_method_is_refused(ada_api: Caller) -> None:
    for path in ("/api/", "/api/v1/nothing", "/api/v2/runs", "/api/v1/runs/"):
        for answer in (Client().get(path), Client(enforce_csrf_checks=True).post(path)):
            assert _shape(answer) == (404, "not_found")
    answer = ada_api.client.delete("/api/v1/runs")
    assert _shape(answer) == (405, "method_not_allowed")
    assert set(answer["Allow"].split(", ")) == {"GET", "POST"}


def test_a_fault_of_ours_says_nothing_of_itself(
    ada_api: Caller,
    bea: Client,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    ada_api.client.raise_request_exception = bea.raise_request_exception = False
    for fault, refusal, words in (
        (OperationalError("gone"), (503, "unavailable"), "The database cannot be reached."),
        (psycopg.OperationalError("gone"), (503, "unavailable"), "The database cannot"),
        (errors.ObjectStoreDown("gone"), (503, "unavailable"), "The object store cannot"),
        (RuntimeError("gone"), (500, "internal"), "Something went wrong"),
    ):
        for name in ("run_details", "read_runs_page"):
            monkeypatch.setattr(run_queries, name, _raise(fault))
        caplog.clear()
        answer = ada_api.get("/runs")
        assert _shape(answer) == refusal
        assert "gone" in caplog.text, "the operator learns the cause"
        assert words in answer.content.decode()
        assert "gone" not in answer.content.decode()
        shows(bea, "/runs/", words, hides=["gone"], status=refusal[0])


_REFUSALS: list[tuple[Exception, int, str, dict[str, Any]]] = [
    (Forbidden("not_eligible", "Not yours."), 403, "not_eligible", {"detail": "Not yours."}),
    (UnknownAgent("no x"), 422, "invalid", {"field": "agent", "detail": _NO_AGENT}),
    (InvalidInput("input.a", "is missing"), 422, "invalid", {"field": "input.a"}),
    (InvalidInput("a", "b", [InvalidInput("c", "d")]), 422, "invalid", {"field": "a", **_OTHERS}),
    (NotJson("input.a", "is a set"), 422, "invalid", {"field": "input.a", "detail": "is a set"}),
    (AlreadyDecided("bea"), 409, "already_decided", {"decided_by": "bea"}),
    (errors.BusinessKeyConflict(), 409, "business_key", {}),
    (errors.NoSuchRun(), 404, "not_found", {"detail": "There is no such run."}),
    (errors.NoSuchEntry(), 404, "not_found", {}),
    (errors.NotQuiescent(), 409, "not_quiescent", {}),
    (errors.HistoryRemoved(9, None, "no"), 409, "history_removed", {"begins": 9}),
    (errors.NotAtRest(), 409, "not_at_rest", {}),
    (errors.NotQuarantined(), 409, "not_quarantined", {}),
    (errors.NotFailed("completed"), 409, "not_failed", {"status": "completed"}),
    (errors.NotImportable("old"), 422, "not_importable", {"detail": "Not imported: old."}),
    (errors.RunArchived(), 409, "run_archived", {}),
    (errors.NotArchived(), 409, "not_archived", {}),
    (errors.NotHeld(), 409, "not_held", {}),
    (errors.RunKnown(), 409, "run_known", {}),
    (errors.TooLarge(), 413, "too_large", {}),
    (errors.RunEnded("exported"), 409, "run_ended", {"status": "exported"}),
    (errors.NoSuchSchedule(), 404, "not_found", {}),
    (errors.NothingToReplay(), 409, "nothing_to_replay", {}),
    (errors.AgentWithoutWorker(), 409, "agent_without_worker", {}),
    (errors.ReplayNotEnded(), 409, "replay_not_ended", {}),
    (errors.NoSuchReplay(), 404, "not_found", {}),
    (errors.ScheduleEnded(), 409, "schedule_ended", {}),
    (errors.NoSuchTrigger(), 404, "not_found", {}),
    (errors.TriggerEnded(), 409, "trigger_ended", {}),
    (errors.NotRetried(), 409, "not_retried", {}),
    (errors.NoSuchWebhook(), 404, "not_found", {}),
    (errors.NotVerified(), 401, "not_verified", {}),
    (errors.DeliveryTooLarge(), 413, "too_large", {}),
    (errors.TooManyUndelivered(), 409, "too_many_unheard", {"field": "text"}),
    (errors.EventConflict(), 409, "event_conflict", {"field": "id"}),
    (errors.TooManyMatched(), 409, "too_many_matched", {"field": "name"}),
    (errors.SwitchAlreadyEngaged(), 409, "stopped_already", {}),
    (errors.SwitchNotEngaged(), 409, "stop_not_on", {}),
    (errors.Tampered("a gap"), 409, "unverified", {"detail": f"{_UNVERIFIED}: a gap"}),
    (errors.KeyMissing("key 7"), 409, "unverified", {"detail": f"{_UNVERIFIED}: key 7"}),
    (NewerSchema(9), 409, "unverified", {}),
]


def test_each_refusal_has_its_status_code_and_fields(
    ada_api: Caller, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    for fault, status, code, more in _REFUSALS:
        with subtests.test(repr(fault)):
            monkeypatch.setattr(run_queries, "run_details", _raise(fault))
            answer = ada_api.get("/runs")
            assert _shape(answer) == (status, code)
            body = answer.json()
            assert body.keys() == {"code", "detail", *more}
            assert body == {**body, **more}


def test_every_refusal_of_the_runtime_is_in_that_table() -> None:
    kinds = {kind for kind in vars(errors).values() if isinstance(kind, type)}
    refusals = {kind for kind in kinds if issubclass(kind, errors.RequestError)}
    assert refusals - {errors.RequestError} <= {type(fault) for fault, *_ in _REFUSALS}


def _raise(fault: Exception) -> Any:
    def broken(*args: object, **kwargs: object) -> None:
        raise fault

    return broken


# A generated client


IMPORT_ALL = """
import importlib, pkgutil, client
for module in pkgutil.walk_packages(client.__path__, "client."):
    importlib.import_module(module.name)
    print(module.name)
"""


def test_a_generated_client_has_every_operation(tmp_path: Path) -> None:
    document = api.get_openapi_schema()
    (tmp_path / "openapi.json").write_text(json.dumps(document, default=str))
    (tmp_path / "config.json").write_text('{"post_hooks": []}')  # its code need not look good
    words = ("generate", "--path", "openapi.json", "--config", "config.json", "--meta", "none")
    _python(
        *("-m", "openapi_python_client", *words, "--output-path", "client", "--fail-on-warning"),
        folder=tmp_path,
    )
    modules = _python("-c", IMPORT_ALL, folder=tmp_path).split()
    named = {name.rpartition(".")[2] for name in modules if name.startswith("client.api.")}
    operations = [one for path in document["paths"].values() for one in path.values()]
    assert {one["operationId"] for one in operations} <= named


def _python(*words: str, folder: Path) -> str:
    """Run Python in a folder, and return its output."""
    done = subprocess.run(
        [sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
