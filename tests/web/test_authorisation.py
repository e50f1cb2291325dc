"""Every page and every route of the API for every identity: the answer is the one written in matrix.txt."""

import re
from collections.abc import Iterator

import pytest
from django.http import HttpResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver

from approvals.models import Approval
from config.api import api
from tests.support.seeds import Cast
from tests.web.matrix import IDENTITIES, ROWS, Places, Row, answer, blank, body_of

# They answer all other addresses.
NOT_OURS = {"^api/", "api/v1/", "api/aap/"}
# What an address names of a run, and the lists and exports of runs and requests.
OF_RUNS = {
    "run",
    "approval",
    "doubt",
    "doubtrun",
    "halt",
    "parked",
    "failed",
    "archived",
    "held",
    "content",
}
LISTS = {
    "/inbox/",
    "/decisions/",
    "/decisions.csv",
    "/decisions.jsonl",
    "/runs/",
    "/runs.csv",
    "/api/v1/runs",
    "/api/v1/decisions",
    "/api/v1/approvals",
}


def test_identities_get_their_documented_answers(places: Places, subtests: pytest.Subtests) -> None:
    for row in ROWS:
        with subtests.test(f"{row.method} {row.path}"):
            said = {one: _said(row, answer(row, one, places)) for one in IDENTITIES}
            assert said == row.cells


def test_a_reviewer_whom_the_rule_does_not_name_gets_the_answers_of_a_stranger(
    places: Places, subtests: pytest.Subtests
) -> None:
    """At the addresses of runs and of their requests, and in no list, export or search."""
    approvals = list(Approval.objects.all())
    asked = [
        text
        for approval in approvals
        for text in (str(approval.id), str(approval.run_id), approval.sentence)
    ]
    lists = [row for row in ROWS if row.method == "GET" and row.path in LISTS]
    for row in lists:  # whom no rule keeps away, they show
        assert any(text in answer(row, "dora", places).getvalue().decode() for text in asked), (
            row.path
        )
    Approval.objects.update(readers=["person:bea"])
    for row in lists:
        with subtests.test(f"{row.method} {row.path}"):
            found = answer(row, "dora", places).getvalue().decode()
            assert [text for text in asked if text in found] == []
    for row in ROWS:
        if OF_RUNS.intersection(re.findall(r"{(\w+)}", row.path)):
            with subtests.test(f"{row.method} {row.path}"):
                assert _said(row, answer(row, "dora", places)) == row.cells["cyril"]


def test_every_other_method_is_refused(
    places: Places, admin: Client, subtests: pytest.Subtests
) -> None:
    read_only = {"/login/", "/api/v1/docs", "/api/v1/openapi.json"}  # they answer as to a GET
    for path in {row.path for row in ROWS} - read_only:
        # A page lists the methods that it takes, so one other stands for all.
        others = ("PUT", "PATCH", "DELETE") if path.startswith("/api/") else ("DELETE",)
        with subtests.test(path):
            for method in others:
                assert admin.generic(method, path.format(**places)).status_code in (401, 405)


def test_a_form_needs_its_token(places: Places, cast: Cast, subtests: pytest.Subtests) -> None:
    stranger, signed = Client(enforce_csrf_checks=True), ("/slack/actions", "/slack/commands")
    for row in ROWS:
        if row.method == "POST" and not row.is_api and row.path not in signed:
            with subtests.test(row.path):
                stranger.force_login(cast.ada if row.cells["ada"] == "302" else cast.bea)
                answer = stranger.post(row.path.format(**places), body_of(row, "ada", places))
                assert answer.status_code == 403
                assert "Your session changed" in answer.content.decode()


def test_a_get_changes_nothing(places: Places, admin: Client, subtests: pytest.Subtests) -> None:
    """A form's address refuses a GET, unless it has a page, which the matrix opens."""
    pages = {row.path for row in ROWS if row.method == "GET"}
    for row in ROWS:
        if row.method == "POST" and row.path not in pages and not row.is_api:
            with subtests.test(row.path):
                assert admin.get(row.path.format(**places)).status_code == 405


def test_every_route_has_a_row_for_each_thing_it_does() -> None:
    """A new route fails here until the matrix says who may use it."""
    written = {blank(row.path) for row in ROWS}
    missing = [
        route
        for route in _routes(get_resolver().url_patterns)
        if route not in NOT_OURS and not any(_fits(route, path) for path in written)
    ]
    assert missing == []


def test_no_two_addresses_have_one_name() -> None:
    """Or a form of one page is sent to another: `reverse` takes the last of them."""
    named = [name for name in _names(get_resolver().url_patterns) if name is not None]
    assert sorted(named) == sorted(set(named))


def test_every_operation_of_the_api_has_its_row() -> None:
    schema = api.get_openapi_schema()
    documented = {
        (method.upper(), blank(path))
        for path, operations in schema["paths"].items()
        for method in operations
    }
    rows = {
        (row.method, blank(row.path))
        for row in ROWS
        if row.is_api and row.path.startswith("/api/v1/")
    }
    assert documented == rows - {("GET", "/api/v1/openapi.json")}


def test_no_two_operations_of_the_api_have_one_id() -> None:
    """Generated clients name their functions by the ids, and an id is the name of its view function alone."""
    paths = api.get_openapi_schema()["paths"]
    ids = [operation["operationId"] for path in paths.values() for operation in path.values()]
    assert sorted(ids) == sorted(set(ids))
    assert {"start_run", "decide_approval", "end_absence", "end_instance"} <= set(ids)


def _said(row: Row, answer: HttpResponse) -> str:
    to_login = answer.status_code == 302 and answer["Location"].startswith("/login/?")
    unknown = row.is_api and answer.status_code == 401
    if "no-store" not in answer.get("Cache-Control", ""):
        return "stored"  # no row expects it: the next person at this machine may press Back
    if row.path == "/readyz" and answer.status_code in (200, 503):
        return "up"
    return "in" if to_login or unknown else str(answer.status_code)


def _routes(patterns: list[URLPattern | URLResolver], before: str = "") -> Iterator[str]:
    for pattern in patterns:
        route = before + str(pattern.pattern)
        if isinstance(pattern, URLResolver):
            yield from _routes(pattern.url_patterns, route)
        else:
            yield route


def _fits(route: str, path: str) -> bool:
    """Tell whether a path of the matrix belongs to this route."""
    as_pattern = re.sub(r"<[^>]+>", "[^/]+", route)
    return re.fullmatch(f"/{as_pattern}", path) is not None


def _names(patterns: list[URLPattern | URLResolver]) -> Iterator[str | None]:
    for one in patterns:
        if isinstance(one, URLResolver):
            if one.namespace is None:  # names in a namespace are apart
                yield from _names(one.url_patterns)
        else:
            yield one.name
