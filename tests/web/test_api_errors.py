"""Errors of the API have one shape; authentication of the API."""

from typing import Any

import psycopg
import pytest
from django.db import OperationalError
from django.test import Client

from approvals.errors import AlreadyDecided
from runtime import errors
from runtime.core.errors import NewerSchema, NotJson
from runtime.errors import Forbidden, InvalidInput, UnknownAgent
from runtime.queries import runs as run_queries
from tests.support.api_client import Caller, code_of
from tests.support.cast import Cast
from tests.support.pages import shows

pytestmark = pytest.mark.django_db

_NO_AGENT = "There is no agent with this name."
_UNVERIFIED = "The stored data cannot be verified"
_OTHERS = {"others": [{"field": "c", "detail": "d"}]}


def _shape(answer: Any) -> tuple[int, str]:
    assert isinstance(answer.json()["detail"], str)
    return code_of(answer)


def test_a_wrong_token_is_unauthenticated(bea: Client) -> None:
    """Not even a session saves it."""
    headers = ("Bearer", "Bearer ", "Bearer aby_0_0", "Basic eDp5", "x")
    for client, header in [*((Client(), header) for header in headers), (bea, "Bearer aby_0_0")]:
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


@pytest.mark.parametrize(
    ("fault", "refusal"),
    [
        (OperationalError("gone"), (503, "unavailable")),
        (psycopg.OperationalError("gone"), (503, "unavailable")),
        (RuntimeError("gone"), (500, "internal")),
    ],
)
def test_a_fault_of_ours_says_nothing_of_itself(
    ada_api: Caller,
    bea: Client,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    refusal: tuple[int, str],
) -> None:
    """Neither the API nor a page."""
    for name in ("run_details", "runs_page"):
        monkeypatch.setattr(run_queries, name, _raise(fault))
    ada_api.client.raise_request_exception = bea.raise_request_exception = False
    answer = ada_api.get("/runs")
    assert _shape(answer) == refusal
    assert "gone" not in answer.content.decode()
    shows(bea, "/runs/", hides=["gone"], status=refusal[0])


_REFUSALS: list[tuple[Exception, int, str, dict[str, Any]]] = [
    (Forbidden("not_eligible", "Not yours."), 403, "not_eligible", {"detail": "Not yours."}),
    (UnknownAgent("no x"), 422, "invalid", {"field": "agent", "detail": _NO_AGENT}),
    (InvalidInput("input.a", "is missing"), 422, "invalid", {"field": "input.a"}),
    (InvalidInput("a", "b", [InvalidInput("c", "d")]), 422, "invalid", {"field": "a", **_OTHERS}),
    (NotJson("input.a", "is a set"), 422, "invalid", {"field": "input.a", "detail": "is a set"}),
    (InvalidInput("reason", "is required"), 422, "invalid", {"field": "reason"}),
    (AlreadyDecided("bea"), 409, "already_decided", {"decided_by": "bea"}),
    (errors.BusinessKeyConflict(), 409, "business_key", {}),
    (errors.NoSuchRun(), 404, "not_found", {"detail": "There is no such run."}),
    (errors.NoSuchEntry(), 404, "not_found", {}),
    (errors.NotQuiescent(), 409, "not_quiescent", {}),
    (errors.NotAtRest(), 409, "not_at_rest", {}),
    (errors.NotQuarantined(), 409, "not_quarantined", {}),
    (errors.NotFailed("completed"), 409, "not_failed", {"status": "completed"}),
    (errors.NotImportable("old"), 422, "not_importable", {"detail": "Not imported: old."}),
    (errors.RunKnown(), 409, "run_known", {}),
    (errors.TooLarge(), 413, "too_large", {}),
    (errors.RunEnded("exported"), 409, "run_ended", {"status": "exported"}),
    (errors.TooManyUndelivered(), 409, "too_many_unheard", {"field": "text"}),
    (errors.EventConflict(), 409, "event_conflict", {"field": "id"}),
    (errors.TooManyMatched(), 409, "too_many_matched", {"field": "name"}),
    (errors.SwitchAlreadyEngaged(), 409, "stopped_already", {}),
    (errors.SwitchNotEngaged(), 409, "stop_not_on", {}),
    (errors.Tampered("a gap"), 409, "unverified", {"detail": f"{_UNVERIFIED}: a gap"}),
    (errors.KeyMissing("key 7"), 409, "unverified", {"detail": f"{_UNVERIFIED}: key 7"}),
    (NewerSchema(9), 409, "unverified", {}),
]


@pytest.mark.parametrize(("fault", "status", "code", "more"), _REFUSALS)
def test_each_refusal_has_its_status_code_and_fields(
    ada_api: Caller,
    monkeypatch: pytest.MonkeyPatch,
    fault: Exception,
    status: int,
    code: str,
    more: dict[str, Any],
) -> None:
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
