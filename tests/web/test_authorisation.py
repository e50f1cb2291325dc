"""Every page and every route of the API for every identity: the answer is the one written in matrix.txt."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpResponse
from django.test import Client, override_settings
from django.urls import URLPattern, URLResolver, get_resolver
from pytest_django import Settings

from agents.models import PublishedAgent
from approvals.accounts import people, tokens
from approvals.decisions import decide
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from config.api import api
from runtime.control.transfer import export_run
from runtime.core.enums import EffectClass
from runtime.models import ContentUse, Run, Stop
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from tests.support.cast import PASSWORD, Cast
from tests.support.fake_ports import FakeTool
from tests.support.forged_exports import Sender
from tests.support.office import NEWCOMER, Office, reseal

IDENTITIES = ("anon", "cyril", "ada", "bea", "admin", "disabled", "narrow")
CELL = re.compile(r"in|up|[1-5]\d\d")
# They answer all other addresses.
BIG = FakeTool(effect=EffectClass.IDEMPOTENT, body=lambda request: ToolResult(value="x" * 70_000))
NOT_OURS = {"^api/", "api/v1/"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One route. `by` is the owner of a token that lacks the scope `without`."""

    method: str
    path: str
    cells: dict[str, str]
    by: str
    without: str

    @property
    def is_api(self) -> bool:
        return self.path.startswith("/api/v1/") and "docs" not in self.path


def _rows() -> Iterator[Row]:
    for line in Path(__file__).with_name("matrix.txt").read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            method, path, *rest = line.split()
            cells = dict(zip(IDENTITIES, rest[: len(IDENTITIES)], strict=True))
            by, without = rest[len(IDENTITIES) :]
            yield Row(method=method, path=path, cells=cells, by=by, without=without)


ROWS = list(_rows())


@pytest.fixture
def places(
    office: Office, cast: Cast, published: None, tmp_path: Path, settings: Settings
) -> dict[str, Any]:
    """The objects named by the paths. Changes are rolled back after each cell."""
    sender = Sender(tmp_path)
    settings.IMPORT_KEYS = (sender.file,)
    left = office.start()
    parcel = export_run(run=left, actor=Actor(person="admin"))
    office.effects.tools["create_account"] = BIG
    run, doubtful = office.start(), office.in_doubt()
    doubt = office.in_doubt_request(doubtful)
    reseal([doubt], not_before=None)  # long past
    halt = office.held()
    token, _ = tokens.create(cast.ada, ALL_SCOPES)
    people.create_person(username="eva", password=PASSWORD, groups=[])
    people.set_groups("eva", [Group.REVIEWERS], actor="second")
    approval = office.request(run)
    return {
        "run": run,
        "parcel": json.loads(sender.send(parcel)),
        "position": 1,
        "approval": approval.id,
        "digest": approval.request_digest,
        "parked": _parked(office),
        "failed": office.failed(),
        "halt": halt.id,
        "haltdigest": halt.request_digest,
        "doubt": doubt.id,
        "doubtrun": doubtful,
        "doubtgate": doubt.gate,
        "token": token.public_id,
        "stop": Stop.objects.create(agent="hr_onboarding", reason="because").id,
        "content": ContentUse.objects.get(run=run).content_id,
    }


def _parked(office: Office) -> UUID:
    """A run in quarantine whose journal verifies."""
    run = office.start()
    Run.objects.filter(id=run).update(status="quarantined", due_at=None)
    return run


def test_every_identity_gets_the_documented_answer(
    places: dict[str, Any], subtests: pytest.Subtests
) -> None:
    for row in ROWS:
        with subtests.test(f"{row.method} {row.path}"):
            assert {identity: _cell(row, identity, places) for identity in IDENTITIES} == row.cells


def test_no_form_is_taken_without_its_token(
    places: dict[str, Any], cast: Cast, subtests: pytest.Subtests
) -> None:
    stranger = Client(enforce_csrf_checks=True)
    for row in ROWS:
        if row.method == "POST" and not row.is_api:
            with subtests.test(row.path):
                stranger.force_login(cast.ada if row.cells["ada"] == "302" else cast.bea)
                answer = stranger.post(row.path.format(**places), _body(row, "ada", places))
                assert answer.status_code == 403
                assert "Your session changed" in answer.content.decode()


def test_every_route_has_a_row_for_each_thing_it_does() -> None:
    """A new route fails here until the matrix says who may use it."""
    written = {re.sub(r"\{\w+\}", "X", row.path) for row in ROWS}
    missing = [
        route
        for route in _routes(get_resolver().url_patterns)
        if route not in NOT_OURS and not any(_fits(route, path) for path in written)
    ]
    assert missing == []


def test_every_cell_is_an_answer_and_every_route_admits_a_person() -> None:
    for row in ROWS:
        assert all(CELL.fullmatch(cell) for cell in row.cells.values()), row
        assert any(cell in {"up", "200", "201", "202", "302"} for cell in row.cells.values()), row


def test_every_operation_of_the_api_has_its_row() -> None:
    schema = api.get_openapi_schema()
    documented = {
        (method.upper(), re.sub(r"\{\w+\}", "X", path))
        for path, operations in schema["paths"].items()
        for method in operations
    }
    rows = {(row.method, re.sub(r"\{\w+\}", "X", row.path)) for row in ROWS if row.is_api}
    assert documented == rows - {("GET", "/api/v1/openapi.json")}


# Asking


def _cell(row: Row, identity: str, places: dict[str, Any]) -> str:
    with transaction.atomic():
        if row.path.rstrip("/").endswith("undo"):
            _decide_as_bea(places)
        said = _said(row, _answer(row, identity, places))
        transaction.set_rollback(True)
    return said


def _decide_as_bea(places: dict[str, Any]) -> None:
    with override_settings(ABEYANCE_UNDO_SECONDS=60):
        decide.decide(
            request=places["approval"],
            verdict="approve",
            digest=places["digest"],
            reason="",
            actor=Actor(person="bea"),
        )


def _answer(row: Row, identity: str, places: dict[str, Any]) -> HttpResponse:
    client = _client(row, identity)
    path = row.path.format(**places)
    if row.method == "GET":
        return client.get(path)  # type: ignore[return-value]
    body = _body(row, identity, places)
    if row.is_api:
        return client.post(path, json.dumps(body), content_type="application/json")  # type: ignore[return-value]
    return client.post(path, body)  # type: ignore[return-value]


def _client(row: Row, identity: str) -> Client:
    client = Client()
    if identity == "anon":
        return client
    name = {"disabled": "bea", "narrow": row.by if row.by != "-" else "bea"}.get(identity, identity)
    person = User.objects.get(username=name)
    if row.is_api or identity == "narrow":
        scopes = ALL_SCOPES - {row.without} if identity == "narrow" else ALL_SCOPES
        _, plain = tokens.create(person, scopes)
        client = Client(headers={"authorization": f"Bearer {plain}"})
    else:
        client.force_login(person)
    if identity == "disabled":
        User.objects.filter(pk=person.pk).update(is_active=False)
    return client


def _body(row: Row, identity: str, places: dict[str, Any]) -> dict[str, Any]:
    """Return a body that an authorised person would send."""
    last = row.path.rstrip("/").rsplit("/", 1)[-1]
    given = {"digest": places["digest"], "reason": "because"}
    another = {"password": "an0ther long passphrase", "again": "an0ther long passphrase"}
    match last:
        case "login":
            name = identity if identity in {"cyril", "ada", "bea", "admin"} else "stranger"
            return {"username": name, "password": PASSWORD}
        case "password":
            return {"current": PASSWORD, **another}
        case "add" if "tokens" in row.path:
            return {"scope": ["runs:read"]}
        case "add":
            return {"username": "newhire", "group": ["reviewers"], **another}
        case "groups":
            return {"group": ["reviewers"]}
        case "confirm":
            return {"seq": "1"}
        case "continue" | "stop":
            return {**given, "digest": places["haltdigest"]}
        case "retry":
            return {"reason": "because"}
        case "decision":
            return {"verdict": "approve", **given}
        case "stops":
            return {"agent": "", "reason": "because"}
        case "put":
            return {"agent": "*", **given}
        case "settle":
            return {"outcome": "give_up", "reason": "because"}
        case "happened":
            return {"result": '{"message_id": "1"}', **given}
        case "events":
            return {"id": "e-1", "name": "signed", "data": {}}
        case "message" | "messages":
            return {"text": "Mind the gap."}
        case "runs":
            return {"agent": "hr_onboarding", "input": NEWCOMER}
        case "imports":
            return dict(places["parcel"])
        case "fork":
            return {"position": 1}
        case "undo" | "resume" | "export" | "lift" if row.is_api:
            return {}
        case "pause" | "cancel" | "readmit" if row.is_api:
            return {"reason": "because"}
        case "start":
            return {f"in.{name}": value for name, value in NEWCOMER.items()} | _hidden(places)
        case _:
            return given


def _hidden(places: dict[str, Any]) -> dict[str, str]:
    """The hidden fields of the form."""
    client = Client()
    client.force_login(User.objects.get(username="ada"))
    page = client.get("/agents/hr_onboarding/start/").content.decode()
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: value for name, value in found if name != "csrfmiddlewaretoken"}


def _said(row: Row, answer: HttpResponse) -> str:
    to_login = answer.status_code == 302 and answer["Location"].startswith("/login/?")
    unknown = row.is_api and answer.status_code == 401
    if "no-store" not in answer.get("Cache-Control", ""):
        return "stored"  # no row expects it: the next person at this machine may press Back
    if row.path == "/readyz" and answer.status_code in (200, 503):
        return "up"
    return "in" if to_login or unknown else str(answer.status_code)


# The routes there are


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


def test_the_list_of_published_agents_is_not_empty(published: None) -> None:
    """Publish an agent; without one the rows of agents would test nothing."""
    assert PublishedAgent.objects.filter(name="hr_onboarding").exists()
