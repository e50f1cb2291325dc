"""Secret values: nobody sees more than a placeholder, through whichever door."""

import json
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from runtime.ports import ToolFault
from runtime.queries import PLACEHOLDER, masked
from tests.desk.caller import Caller
from tests.desk.office import LOST, Office
from tests.fakes.ports import FakeTool, ask, say, turns

TOKEN = "k1:gAAAAB-token_of=a=secret"  # what must not be found anywhere
SEALED = {"$secret": TOKEN}


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (SEALED, PLACEHOLDER),
        ({"$secret": None}, PLACEHOLDER),
        ({"a": [SEALED, {"b": SEALED}], "c": 1}, {"a": [PLACEHOLDER, {"b": PLACEHOLDER}], "c": 1}),
        (json.dumps(SEALED), f'"{PLACEHOLDER}"'),
        (json.dumps(json.dumps(SEALED)), f'"\\"{PLACEHOLDER}\\""'),
        (f"no such key: {SEALED!r}", f"no such key: '{PLACEHOLDER}'"),
        ({json.dumps(SEALED): 1}, {f'"{PLACEHOLDER}"': 1}),
        ("what a $secret is", "what a $secret is"),
        (None, None),
        (1.5, 1.5),
    ],
)
def test_a_secret_is_a_placeholder_wherever_it_stands(value: Any, shown: Any) -> None:
    assert masked(value) == shown


@pytest.mark.parametrize("length", [13, 20, 30])
def test_a_text_that_was_cut_off_inside_a_token_holds_none_of_it(length: int) -> None:
    assert TOKEN[:3] not in masked(json.dumps(SEALED)[:length] + "…")


def test_no_page_and_no_answer_holds_the_token(
    bea: Client, admin: Client, admin_api: Caller, bea_api: Caller, office: Office
) -> None:
    run = _secretive(office)
    request = office.request(run)
    for path in (f"/runs/{run}/", f"/runs/{run}/cancel/", f"/a/{request.id}/", "/inbox/", "/runs/"):
        for client in (admin, bea):
            _is_clean(client.get(path).content.decode())
    for path in _doors(run):
        _is_clean(admin_api.get(path).content.decode())
    _is_clean(bea_api.get(f"/approvals/{request.id}").content.decode())
    assert PLACEHOLDER in bea.get(f"/a/{request.id}/").content.decode()
    assert admin_api.get(f"/approvals/{request.id}").json()["args"]["note"] == PLACEHOLDER


def test_a_call_in_doubt_keeps_its_secrets(bea: Client, admin_api: Caller, office: Office) -> None:
    run = _secretive(office, lost=True)
    page = bea.get(f"/a/{office.doubt(run).id}/").content.decode()
    _is_clean(page)
    assert PLACEHOLDER in page
    for path in _doors(run):
        _is_clean(admin_api.get(path).content.decode())


def test_a_damaged_document_is_searched_as_the_text_it_is(
    admin_api: Caller, office: Office
) -> None:
    run = _secretive(office)
    with connection.cursor() as cursor:
        cursor.execute(
            "UPDATE runtime_continuation SET body = '{' || body WHERE run_id = %s", [run]
        )
    document = admin_api.get(f"/runs/{run}/continuation").content.decode()
    _is_clean(document)
    assert "frames" in document


def _secretive(office: Office, *, lost: bool = False) -> UUID:
    """A run with secrets in arguments, a result, an error, and what a model says of them."""
    level = {"username": "newhire", "security_level": 3, "note": SEALED}
    office.effects.agents["account_agent"] = turns(
        ask(("create_account", {"username": "newhire", "password": SEALED})),
        ask(("broken", {"password": SEALED})),
        ask(("set_privileges", level)),
        say(f"I was given {json.dumps(SEALED)}."),
    )
    fault = ToolFault(error=f"refused {SEALED!r}")
    office.effects.tools["broken"] = FakeTool(body=lambda request: fault)
    if lost:
        office.effects.tools["set_privileges"] = FakeTool(gated=True, body=LOST.body)
    run = office.start()
    if lost:
        office.approve(run)
    return run


def _doors(run: UUID) -> list[str]:
    return [
        "/runs",
        f"/runs/{run}",
        f"/runs/{run}/journal",
        f"/runs/{run}/continuation",
        "/approvals",
        f"/approvals?run={run}&kind=in_doubt",
    ]


def _is_clean(text: str) -> None:
    assert "token_of" not in text
    assert "$secret" not in text
