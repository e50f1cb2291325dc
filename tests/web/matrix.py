"""Reads matrix.txt, which says who gets which answer where, and sends its requests."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from django.contrib.auth.models import User
from django.test import Client, override_settings
from pytest_django import Settings

from approvals.accounts import people, tokens
from approvals.decisions import decide
from approvals.permissions.scopes import ALL_SCOPES
from approvals.policy import Group
from runtime.control.transfer import export_run
from runtime.core.enums import EffectClass
from runtime.models import BlobReference, KillSwitch, Run
from runtime.ports.access import Actor
from runtime.ports.effects import ToolResult
from tests.support.cast import PASSWORD, Cast
from tests.support.fake_ports import FakeTool
from tests.support.forged_exports import Sender
from tests.support.office import NEWCOMER, Office, reseal
from tests.support.pages import log_in, text

IDENTITIES = ("anon", "cyril", "ada", "bea", "admin", "disabled", "narrow")
BIG = FakeTool(effect=EffectClass.IDEMPOTENT, body=lambda request: ToolResult(value="x" * 70_000))


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

    @property
    def blank(self) -> str:
        """The path with each of its parameters as X."""
        return blank(self.path)


def blank(path: str) -> str:
    return re.sub(r"\{\w+\}", "X", path)


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
        "stop": KillSwitch.objects.create(agent="hr_onboarding", reason="because").id,
        "content": BlobReference.objects.get(run=run).content_id,
    }


def _parked(office: Office) -> UUID:
    """A run in quarantine whose journal verifies."""
    run = office.start()
    Run.objects.filter(id=run).update(status="quarantined", due_at=None)
    return run


def decide_as_bea(places: dict[str, Any]) -> None:
    with override_settings(ABEYANCE_UNDO_SECONDS=60):
        decide.decide(
            request=places["approval"],
            verdict="approve",
            digest=places["digest"],
            reason="",
            actor=Actor(person="bea"),
        )


def client_of(row: Row, identity: str) -> Client:
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


def body_of(row: Row, identity: str, places: dict[str, Any]) -> dict[str, Any]:
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
    page = text(log_in(User.objects.get(username="ada")), "/agents/hr_onboarding/start/")
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page)
    return {name: value for name, value in found if name != "csrfmiddlewaretoken"}
