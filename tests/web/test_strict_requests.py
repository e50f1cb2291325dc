"""Every operation and page accepts input, or refuses it with field and limit; input is never a server error."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import pytest
from django.test import Client, RequestFactory

from approvals.models import Approval
from config.api import api
from runtime.core.values.limits import MAX_BODY, MAX_INPUT, MAX_REPORTED
from runtime.errors import InvalidInput
from runtime.web.requests import StrictParser
from tests.support.api_client import Caller, field_of
from tests.support.office import NEWCOMER, Office
from tests.web.matrix import ROWS, Places, Row, answer, blank, body_of

pytestmark = pytest.mark.django_db

STRANGE: list[Any] = [True, 7, "text", ["text"], {"x": 1}]
TYPES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "array": list,
    "boolean": bool,
    "null": type(None),
}
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
TEXTS = (  # in all fields together below the limit of a form, or no view reads them
    "\x00",
    "x" * 20_000,
    "[" * 20_000,
    "NaN",
    "\u2028\x85\u202e",
    "9" * 5_000,
    "-1",
    "\ud800",
)
FIELDS = (
    *("username", "password", "again", "current", "group", "scope", "reason", "digest", "result"),
    *("form", "business_key", "next", "verdict", "in.full_name", "in.security_level", "input"),
    *("to", "note", "text", "comment", "until", "name"),
)
QUERY = ("q", "cursor", "page", "tab", "step", "status", "limit", "kind", "next")


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation as documented, and the row of a person who may use it."""

    row: Row
    parameters: list[dict[str, Any]]
    fields: dict[str, Any]

    @property
    def who(self) -> str:
        return next(who for who, cell in self.row.cells.items() if cell.startswith("2"))

    def usual(self, places: Places) -> dict[str, Any]:
        return body_of(self.row, self.who, places)

    def answer(self, places: Places, query: str = "", body: Any = None) -> Any:
        return answer(self.row, self.who, places, query, body)


def _operations() -> Iterator[Operation]:
    schema = json.loads(json.dumps(api.get_openapi_schema(), default=str))
    rows = {(row.method, blank(row.path)): row for row in ROWS}
    for path, methods in schema["paths"].items():
        for method, found in methods.items():
            row = rows[method.upper(), blank(path)]
            if not any(cell.startswith("2") for cell in row.cells.values()):
                continue  # no person of the table may use it
            yield Operation(
                row=row,
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


def test_unknown_query_parameters_are_refused(places: Places, subtests: pytest.Subtests) -> None:
    for operation in _operations():
        with subtests.test(f"{operation.row.method} {operation.row.path}"):
            assert field_of(operation.answer(places, "?surprise=1")) == (422, "surprise")


def test_wrong_query_values_are_refused(places: Places, subtests: pytest.Subtests) -> None:
    texts = ("person", "by", "agent", "tool", "q")
    free = {("/runs", "business_key"), *(("/decisions", name) for name in texts)}
    free.add(("/instances", "q"))  # any text is one
    for operation in _operations():
        for name in (parameter["name"] for parameter in operation.parameters):
            if (operation.row.path.removeprefix("/api/v1"), name) in free:
                continue
            with subtests.test(f"{operation.row.path} {name}"):
                assert field_of(operation.answer(places, f"?{name}=!")) == (422, name)


def test_unknown_body_fields_are_refused(places: Places, subtests: pytest.Subtests) -> None:
    for operation in _operations():
        if operation.row.method == "GET" or operation.row.path.endswith("/imports"):
            continue  # a file of an export is signed: it is verified as it is
        with subtests.test(f"{operation.row.method} {operation.row.path}"):
            sent = operation.usual(places) | {"surprise": 1}
            assert field_of(operation.answer(places, body=sent)) == (422, "surprise")


def test_body_fields_of_a_wrong_type_are_refused(places: Places, subtests: pytest.Subtests) -> None:
    for operation in _operations():
        for name, rule in operation.fields.items():
            for value in (value for value in STRANGE if not _fits(value, rule)):
                with subtests.test(f"{operation.row.path} {name}={value!r}"):
                    sent = operation.usual(places) | {name: value}
                    status, field = field_of(operation.answer(places, body=sent))
                    assert status == 422
                    assert (field or "").split(".")[0] == name


def _fits(value: Any, rule: dict[str, Any]) -> bool:
    """Tell whether the documented type allows this value; without a type all values are allowed."""
    kinds = _kinds(rule)
    if not kinds:
        return "enum" not in rule
    if isinstance(value, bool):  # in Python it is an integer, too
        return "boolean" in kinds
    return any(isinstance(value, TYPES[kind]) for kind in kinds)  # type: ignore[arg-type]


def _kinds(rule: dict[str, Any]) -> list[str]:
    kinds: list[str] = []
    for one in rule.get("anyOf", [rule]):
        kind = one.get("type", [])
        kinds += [kind] if isinstance(kind, str) else kind
    return kinds


def test_no_api_field_fails_on_hostile_input(places: Places, subtests: pytest.Subtests) -> None:
    # What no body may hold is refused before fields are read, and what a type does not allow before the operation:
    # one operation with fields stands for all in the first, and one field of each type in the second.
    in_fields = [value for value in VALUES if _is_readable(value)]
    assert 5 < len(in_fields) < len(VALUES)
    refused = set[tuple[str, ...]]()
    for operation in (one for one in _operations() if one.row.method == "POST"):
        usual = operation.usual(places)
        sent = [] if refused and operation.fields else list(VALUES)
        for name, rule in operation.fields.items():
            field = json.dumps({**usual, name: "@"})
            for value in in_fields:
                kind = (value, *_kinds(rule))
                if _fits(json.loads(value), rule) or kind not in refused:
                    sent.append(field.replace('"@"', value))
                    refused.add(kind)
        if "input" in usual:
            field = json.dumps({**usual, "input": {"full_name": "@"}})
            sent += [field.replace('"@"', value) for value in in_fields]
        with subtests.test(f"{operation.row.path}"):
            for body in sent:
                answer = operation.answer(places, body=body)
                assert answer.status_code < 500, body[:200]
                if answer.status_code in (413, 422):
                    assert {"code", "detail"} <= set(answer.json())


def _is_readable(body: str) -> bool:
    try:
        StrictParser().parse_body(RequestFactory().post("/", body, "application/json"))
    except (ValueError, RecursionError, InvalidInput):
        return False
    return len(body) <= MAX_BODY


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_no_page_fails_on_any_text(places: Places, subtests: pytest.Subtests, method: str) -> None:
    """In every field and query parameter, and a NUL in the address."""
    rows = [row for row in ROWS if row.method == method]
    for row in rows:
        with subtests.test(f"{row.method} {row.path}"):
            for text in TEXTS:
                assert _visit(row, places, text) < 500, text[:20]
    row = next(row for row in rows if "{run}" in row.path)
    nul = replace(row, path=row.path.format_map(dict.fromkeys(places, "%00")))
    assert _visit(nul, places, "") == 404


def _visit(row: Row, places: Places, text: str) -> int:
    """Send this text as a person who may use the page; half a surrogate arrives as bytes that are no text."""
    names = ("admin", "bea", "ada")
    name = next((n for n in names if row.cells[n] in {"200", "201", "302"}), "admin")
    query = f"?{_encoded(QUERY, text[:2_000])}" if row.method == "GET" else ""
    return int(answer(row, name, places, query, _encoded(FIELDS, text)).status_code)


@cache
def _encoded(names: tuple[str, ...], text: str) -> str:
    # A bracket stays as it is: Python takes 50 ms to decode all of them.
    return urlencode(dict.fromkeys(names, text), safe="[", errors="surrogatepass")


def test_oversized_input_is_refused_with_field_and_limit(
    ada_api: Caller, bea_api: Caller, office: Office, published: None
) -> None:
    doubt = office.in_doubt_request(office.in_doubt())
    long = "x" * 100_000
    run = {"agent": "hr_onboarding", "input": {**NEWCOMER, "full_name": long}}
    settle = f"/runs/{doubt.run_id}/gates/{doubt.gate}/settle"
    for refused, field, limit in (
        (ada_api.post("/runs", run), "input", MAX_INPUT),
        (bea_api.post(settle, {"outcome": "happened", "result": long}), "result", MAX_REPORTED),
        (ada_api.send("/runs", " " * (MAX_BODY + 1)), None, MAX_BODY),
    ):
        assert field_of(refused) == (422 if field else 413, field)
        assert str(limit) in refused.json()["detail"]


@pytest.mark.parametrize("digest", ["\x00", "sha256:0", "x" * 5_000, "sha256:" + "0" * 64])
def test_an_unknown_blob_is_not_found(ada_api: Caller, ada: Client, digest: str) -> None:
    assert ada_api.get(f"/contents/{digest}").status_code == 404
    assert ada.get(f"/contents/{digest}/").status_code == 404


def test_a_decision_takes_no_field_twice(bea_api: Caller, asked: Approval) -> None:
    path, digest = f"/approvals/{asked.id}/decision", asked.approval_digest
    twice = f'{{"digest": "{digest}", "verdict": "deny", "reason": "no", "verdict": "approve"}}'
    assert field_of(bea_api.send(path, twice)) == (422, "verdict")
    asked.refresh_from_db()
    assert asked.status == Approval.Status.PENDING


def test_a_parameter_given_twice_or_in_a_path_is_refused(ada_api: Caller, suspended: UUID) -> None:
    run = f"/runs/{suspended}"
    assert field_of(ada_api.get("/runs?limit=1&limit=2")) == (422, "limit")
    assert field_of(ada_api.get(f"{run}?run={suspended}")) == (422, "run")
    for text in ("[]", "nonsense"):
        assert field_of(ada_api.send(f"{run}/export", text)) == (422, "body")
    assert Client().get("/api/v1/runs?surprise=1").status_code == 401  # a stranger hears no more
