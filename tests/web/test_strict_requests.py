"""Every operation of the OpenAPI document refuses unknown fields and parameters by name."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from django.db import transaction
from django.test import Client

from approvals.models import Request
from config.api import api
from tests.support.api_client import Caller, field_of
from tests.support.office import Office
from tests.web.matrix import ROWS, Row, blank, body_of, client_of, decide_as_bea

pytestmark = pytest.mark.django_db

STRANGE: list[Any] = [True, 7, "text", ["text"], {"x": 1}]
TYPES = {"string": str, "integer": int, "number": (int, float), "object": dict, "null": type(None)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation as documented, and the row of a person who may use it."""

    row: Row
    parameters: list[dict[str, Any]]
    fields: dict[str, Any]

    @property
    def who(self) -> str:
        return next(who for who, cell in self.row.cells.items() if cell.startswith("2"))


def _operations() -> Iterator[Operation]:
    schema = json.loads(json.dumps(api.get_openapi_schema(), default=str))
    rows = {(row.method, row.blank): row for row in ROWS}
    for path, methods in schema["paths"].items():
        for method, found in methods.items():
            yield Operation(
                row=rows[method.upper(), blank(path)],
                parameters=[p for p in found.get("parameters", []) if p["in"] == "query"],
                fields=_fields(found, schema),
            )


def _fields(operation: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    if "requestBody" not in operation:
        return {}
    found = operation["requestBody"]["content"]["application/json"]["schema"]
    if "$ref" not in found:
        return {}  # the operation itself reads it
    named: dict[str, Any] = schema["components"]["schemas"][found["$ref"].rsplit("/", 1)[-1]]
    return dict(named.get("properties", {}))


def _ask(operation: Operation, places: dict[str, Any], *, query: str = "", body: Any = None) -> Any:
    row = operation.row
    with transaction.atomic():
        if row.path.endswith("/undo"):
            decide_as_bea(places)
        client = client_of(row, operation.who)
        path = row.path.format(**places) + query
        if row.method == "GET":
            answer = client.get(path)
        else:
            sent = body_of(row, operation.who, places) if body is None else body
            answer = client.post(path, json.dumps(sent), content_type="application/json")
        transaction.set_rollback(True)
    return answer


def test_unknown_query_parameters_are_refused(
    places: dict[str, Any], subtests: pytest.Subtests
) -> None:
    for operation in _operations():
        with subtests.test(f"{operation.row.method} {operation.row.path}"):
            answer = _ask(operation, places, query="?surprise=1")
            assert field_of(answer) == (422, "surprise")


def test_wrong_query_values_are_refused(places: dict[str, Any], subtests: pytest.Subtests) -> None:
    free = {("/runs", "business_key")}  # any text is one
    for operation in _operations():
        for name in (parameter["name"] for parameter in operation.parameters):
            if (operation.row.path.removeprefix("/api/v1"), name) in free:
                continue
            with subtests.test(f"{operation.row.path} {name}"):
                assert field_of(_ask(operation, places, query=f"?{name}=!")) == (422, name)


def test_unknown_body_fields_are_refused(places: dict[str, Any], subtests: pytest.Subtests) -> None:
    for operation in _operations():
        if operation.row.method == "GET" or operation.row.path.endswith("/imports"):
            continue  # a file of an export is signed: it is verified as it is
        with subtests.test(f"{operation.row.method} {operation.row.path}"):
            sent = body_of(operation.row, operation.who, places) | {"surprise": 1}
            assert field_of(_ask(operation, places, body=sent)) == (422, "surprise")


def test_body_fields_of_a_wrong_type_are_refused(
    places: dict[str, Any], subtests: pytest.Subtests
) -> None:
    for operation in _operations():
        for name, rule in operation.fields.items():
            for value in (value for value in STRANGE if not _fits(value, rule)):
                with subtests.test(f"{operation.row.path} {name}={value!r}"):
                    sent = body_of(operation.row, operation.who, places) | {name: value}
                    status, field = field_of(_ask(operation, places, body=sent))
                    assert status == 422
                    assert (field or "").split(".")[0] == name


def _fits(value: Any, rule: dict[str, Any]) -> bool:
    """Tell whether the documented type allows this value; without a type all values are allowed."""
    kinds: list[str] = []
    for one in rule.get("anyOf", [rule]):
        kind = one.get("type", [])
        kinds += [kind] if isinstance(kind, str) else kind
    if not kinds:
        return "enum" not in rule
    return not isinstance(value, bool) and any(isinstance(value, TYPES[kind]) for kind in kinds)  # type: ignore[arg-type]


def test_a_decision_takes_no_more_than_it_says(
    bea_api: Caller, office: Office, suspended: UUID
) -> None:
    request = office.request(suspended)
    path, digest = f"/approvals/{request.id}/decision", request.request_digest
    body = {"verdict": "approve", "digest": digest, "args": {"security_level": 1}}
    assert field_of(bea_api.post(path, body)) == (422, "args")
    twice = f'{{"digest": "{digest}", "verdict": "deny", "reason": "no", "verdict": "approve"}}'
    assert field_of(bea_api.send(path, twice)) == (422, "verdict")
    request.refresh_from_db()
    assert request.status == Request.Status.PENDING


def test_a_parameter_given_twice_or_in_the_path_is_refused(
    ada_api: Caller, suspended: UUID
) -> None:
    run = f"/runs/{suspended}"
    assert field_of(ada_api.get("/runs?limit=1&limit=2")) == (422, "limit")
    assert field_of(ada_api.get(f"{run}?run={suspended}")) == (422, "run")
    for text in ("[]", "nonsense"):
        assert field_of(ada_api.send(f"{run}/resume", text)) == (422, "body")
    assert (
        Client().get("/api/v1/runs?surprise=1").status_code == 401
    )  # strangers hear nothing of it


def test_kinds_and_states_of_approvals_are_documented() -> None:
    schema = api.get_openapi_schema()
    operation = schema["paths"]["/api/v1/approvals"]["get"]
    rules = {parameter["name"]: parameter["schema"] for parameter in operation["parameters"]}
    assert rules["kind"]["enum"] == ["any", "approval", "in_doubt", "hold", "limit", "version"]
    assert rules["status"]["anyOf"][0]["enum"] == list(Request.Status.values)
    assert schema["components"]["schemas"]["Until"]["enum"] == ["suspended", "ended"]
