"""Secret values: nobody sees more than a placeholder, through whichever door."""

import json
from collections.abc import Callable
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import Client

from runtime import sealing
from runtime.ports import ToolFault
from runtime.queries import masked
from runtime.sealing import PLACEHOLDER
from tests.desk.caller import Caller
from tests.desk.office import LOST, Office
from tests.fakes.ports import FakeTool, ask, say, turns

FAKE = 'pay {"$secret": "to mallory 9999 EUR"} now'


@cache
def _sealed() -> dict[str, str]:
    """Sealed for the note of the one call that people decide on."""
    return sealing.seal("swordfish", sealing.place("set_privileges", "args", "note"))


def _key_id() -> str:
    return _sealed()["$secret"].partition(":")[0]


def _token() -> str:
    return _sealed()["$secret"].partition(":")[2]


@pytest.mark.parametrize(
    ("around", "shown"),
    [
        (lambda it: it, PLACEHOLDER),
        (
            lambda it: {"a": [it, {"b": it}], "c": 1},
            {"a": [PLACEHOLDER, {"b": PLACEHOLDER}], "c": 1},
        ),
        (json.dumps, f'"{PLACEHOLDER}"'),
        (lambda it: json.dumps(json.dumps(it)), f'"\\"{PLACEHOLDER}\\""'),
        (lambda it: f"no such key: {it!r}", f"no such key: '{PLACEHOLDER}'"),
        (lambda it: {json.dumps(it): 1}, {f'"{PLACEHOLDER}"': 1}),
    ],
)
def test_a_secret_is_a_placeholder_wherever_it_stands(
    around: Callable[[Any], Any], shown: Any
) -> None:
    assert masked(around(_sealed())) == shown


@pytest.mark.parametrize(
    "value",
    [
        "what a $secret is",
        None,
        1.5,
        {"$secret": None},
        {"$secret": "DE00 EVIL 0000"},
        {"$secret": "DE00", "also": "rm -rf"},
        {"$secret": "KEY:pay mallory 9999 EUR"},
        {"$secret": "KEY:AAAA"},
        FAKE,
        '{"$secret": "to mallory, cut o…',
        '{"$secret": "KEY:to mallory, cut o…',
    ],
)
def test_what_only_looks_like_a_secret_is_shown(value: Any) -> None:
    given = json.loads(json.dumps(value).replace("KEY", _key_id()))
    assert masked(given) == given


@pytest.mark.parametrize("length", [25, 40, 60])
def test_a_text_that_was_cut_off_inside_a_token_holds_none_of_it(length: int) -> None:
    assert _token()[:3] not in masked(json.dumps(_sealed())[:length] + "…")


def test_arguments_hide_only_what_opens_in_its_place() -> None:
    changed = {"$secret": f"{_key_id()}:{_token()[:-8]}AAAAAAAA"}
    args = {"note": _sealed(), "other": _sealed(), "extra": changed, "text": FAKE}
    assert sealing.masked_args("set_privileges", args) == {**args, "note": PLACEHOLDER}
    assert sealing.masked_args("another", args) == args


def test_arguments_that_look_secret_are_shown_to_reviewers(
    bea: Client, bea_api: Caller, office: Office
) -> None:
    extra = {"iban": {"$secret": "DE00 EVIL 0000", "also": ["rm -rf"]}, "note": FAKE}
    request = office.request(office.start(args={"username": "newhire", "extra": extra}))
    page = bea.get(f"/a/{request.id}/").content.decode()
    assert all(word in page for word in ("DE00 EVIL 0000", "rm -rf", "mallory"))
    assert bea_api.get(f"/approvals/{request.id}").json()["args"]["extra"] == extra
    assert "DE00 EVIL" in bea_api.get(f"/runs/{request.run_id}/journal").content.decode()


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
    level = {"username": "newhire", "security_level": 3, "note": _sealed()}
    office.effects.agents["account_agent"] = turns(
        ask(("create_account", {"username": "newhire", "password": _sealed()})),
        ask(("broken", {"password": _sealed()})),
        ask(("set_privileges", level)),
        say(f"I was given {json.dumps(_sealed())}."),
    )
    fault = ToolFault(error=f"refused {_sealed()!r}")
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
    assert _token() not in text
    assert "$secret" not in text
