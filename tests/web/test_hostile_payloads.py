"""Hostile input to every page and route is accepted, or refused with field and limit; never a server error."""

import json
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.core.limits import MAX_BODY, MAX_INPUT, MAX_REASON, MAX_REPORTED
from tests.support.api_client import Caller
from tests.support.cast import Cast
from tests.support.office import NEWCOMER, Office, reseal
from tests.web.matrix import ROWS, Row

NESTED = 100_000
# JSON texts that parsers, databases or programs stumble over.
VALUES = (
    r'"\u0000"',
    r'"\ud800"',
    r'{"\u0000": 1, "\udfff": 2}',
    "NaN",
    "-Infinity",
    "1e999",
    str(2**53),
    "9" * 10_000,
    "[" * NESTED + "]" * NESTED,
    '{"a":' * NESTED + "1" + "}" * NESTED,
    "[" * 65 + "]" * 65,
    json.dumps("x" * 1_500_000),
    json.dumps({"$secret": "none:none", "$result": "sha256:0", "$ref": "http://127.0.0.1/"}),
    '{"a": 1, "a": 2}',
    "null",
    "[]",
)
TEXTS = (
    "\x00",
    "x" * 300_000,
    "[" * NESTED,
    "NaN",
    "\u2028\x85\u202e",
    "9" * 5_000,
    "-1",
    "\ud800",
)
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)
FIELDS = (
    *("username", "password", "again", "current", "group", "scope", "reason", "digest", "result"),
    *("form", "business_key", "next", "verdict", "in.full_name", "in.security_level", "input"),
)
# Opening them goes on for as long as the tab is open.
STREAMS = {"/stream/"}


@pytest.fixture
def asked(office: Office, cast: Cast, published: None) -> dict[str, Any]:
    """A run that waits for a decision and one whose call is in doubt."""
    run, doubtful = office.start(), office.in_doubt()
    doubt, approval = office.in_doubt_request(doubtful), office.request(run)
    reseal([doubt], not_before=None)
    return {
        "run": run,
        "approval": approval.id,
        "digest": approval.request_digest,
        "doubt": doubt.id,
        "doubtrun": doubtful,
        "doubtgate": doubt.gate,
    }


def _bodies(asked: dict[str, Any], value: str) -> list[tuple[str, str, str]]:
    """Yield a request for every field of every body, with this value in it."""
    run, digest = f"/runs/{asked['run']}", asked["digest"]
    decision = f"/approvals/{asked['approval']}/decision"
    settle = f"/runs/{asked['doubtrun']}/gates/{asked['doubtgate']}/settle"
    known, agent = f'"input": {json.dumps(NEWCOMER)}', '"agent": "hr_onboarding"'
    of_ada = [
        ("/runs", value),
        ("/runs", f'{{"agent": {value}, {known}}}'),
        ("/runs", f'{{{agent}, "input": {value}}}'),
        ("/runs", f'{{{agent}, "input": {{"full_name": {value}}}}}'),
        ("/runs", f'{{{agent}, "business_key": {value}, {known}}}'),
        (f"{run}/cancel", f'{{"reason": {value}}}'),
    ]
    of_bea = [
        (decision, f'{{"verdict": {value}, "digest": "{digest}"}}'),
        (decision, f'{{"verdict": "deny", "reason": "no", "digest": {value}}}'),
        (decision, f'{{"verdict": "deny", "digest": "{digest}", "reason": {value}}}'),
        (settle, f'{{"outcome": {value}}}'),
        (settle, f'{{"outcome": "happened", "result": {value}}}'),
        (settle, f'{{"outcome": "give_up", "reason": {value}}}'),
    ]
    return [("ada", *sent) for sent in of_ada] + [("bea", *sent) for sent in of_bea]


def _send(caller: Caller, path: str, body: str) -> Any:
    """Return the answer; its changes are rolled back."""
    caller.client.raise_request_exception = False
    with transaction.atomic():
        answer = caller.send(path, body)
        transaction.set_rollback(True)
    return answer


@pytest.mark.parametrize("value", VALUES, ids=lambda value: value[:20])
def test_no_api_field_fails_on_hostile_input(
    asked: dict[str, Any], ada_api: Caller, bea_api: Caller, value: str
) -> None:
    callers = {"ada": ada_api, "bea": bea_api}
    for who, path, body in _bodies(asked, value):
        answer = _send(callers[who], path, body)
        assert answer.status_code < 500, (path, body[:100])
        if answer.status_code in (413, 422):
            assert {"code", "detail"} <= set(answer.json())


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(value=ANYTHING)
def test_nor_by_anything_else(
    asked: dict[str, Any], ada_api: Caller, bea_api: Caller, value: Any
) -> None:
    for who, path, body in _bodies(asked, json.dumps(value)):
        caller = ada_api if who == "ada" else bea_api
        assert _send(caller, path, body).status_code < 500, (path, body[:200])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_page_fails_on_hostile_input(
    asked: dict[str, Any], published: None, subtests: pytest.Subtests, method: str
) -> None:
    rows = [row for row in ROWS if row.method == method and row.path not in STREAMS]
    for row in rows:
        with subtests.test(f"{row.method} {row.path}"):
            for text in TEXTS:
                assert _visit(row, asked, text).status_code < 500, text[:20]


def _visit(row: Row, asked: dict[str, Any], text: str) -> HttpResponse:
    """Send this text in every field and query parameter, as a person who may use the page."""
    names = ("admin", "bea", "ada")
    name = next((n for n in names if row.cells[n] in {"200", "201", "302"}), "admin")
    client = Client(raise_request_exception=False)
    client.force_login(User.objects.get(username=name))
    path = row.path.format_map(_Named(asked))
    with transaction.atomic():
        if row.method == "GET":
            asked_for = ("q", "cursor", "page", "tab", "step", "status", "limit", "kind", "next")
            answer = client.get(path, dict.fromkeys(asked_for, _encodable(text[:2_000])))
        else:
            answer = client.post(path, dict.fromkeys(FIELDS, _encodable(text)))
        transaction.set_rollback(True)
    return answer  # type: ignore[return-value]


class _Named(dict[str, Any]):
    def __missing__(self, key: str) -> str:
        return "none"


def _encodable(text: str) -> str | bytes:
    """Half a surrogate is no UTF-8: it arrives as three bytes that are not text."""
    return text.encode("utf-8", "surrogatepass").decode("latin-1") if "\ud800" in text else text


def test_oversized_input_is_refused_with_field_and_limit(
    asked: dict[str, Any], ada_api: Caller, bea_api: Caller
) -> None:
    long = "x" * 100_000
    run = {"agent": "hr_onboarding", "input": {**NEWCOMER, "full_name": long}}
    settle = f"/runs/{asked['doubtrun']}/gates/{asked['doubtgate']}/settle"
    for answer, field, limit in (
        (ada_api.post("/runs", run), "input", MAX_INPUT),
        (ada_api.post(f"/runs/{asked['run']}/cancel", {"reason": long}), "reason", MAX_REASON),
        (bea_api.post(settle, {"outcome": "happened", "result": long}), "result", MAX_REPORTED),
    ):
        body = answer.json()
        assert (answer.status_code, body["code"], body["field"]) == (422, "invalid", field)
        assert str(limit) in body["detail"]
    answer = ada_api.send("/runs", " " * (MAX_BODY + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
    assert str(MAX_BODY) in answer.json()["detail"]


@pytest.mark.parametrize("digest", ["\x00", "sha256:0", "x" * 5_000, "sha256:" + "0" * 64])
def test_an_unknown_blob_is_not_found(ada_api: Caller, ada: Client, digest: str) -> None:
    assert ada_api.get(f"/contents/{digest}").status_code == 404
    assert ada.get(f"/contents/{digest}/").status_code == 404
