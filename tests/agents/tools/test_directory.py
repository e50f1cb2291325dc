"""Accounts in a real SCIM directory over HTTP on loopback."""

import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from pytest_django import Settings
from scim2_client import SCIMClientException
from scim2_models import SCIMException
from scim2_server.utils import load_default_resource_types

from agents.errors import NotDone, ToolError
from agents.tools.directory import create_account, grant_application_access, set_privileges
from tests.agents.conftest import Directory, context

USERS = load_default_resource_types()["User"]
NEWCOMER = {"full_name": "New Hire", "email": "new.hire@example.com", "username": "new.hire"}


def _roles(directory: Directory) -> list[Any]:
    return [[role.value for role in account.roles or []] for account in directory.accounts()]


def test_an_account_carries_its_data_and_the_key_of_its_call(directory: Directory) -> None:
    made = create_account(context("r/0/c1.0"), **NEWCOMER)
    (account,) = directory.accounts()
    assert made == {"id": account.id, "username": "new.hire"}
    assert account.external_id == "r/0/c1.0"
    assert account.display_name == account.name.formatted == "New Hire"
    assert [email.value for email in account.emails] == ["new.hire@example.com"]
    assert account.active
    assert not account.roles


def test_the_same_call_again_finds_its_account(directory: Directory) -> None:
    made = create_account(context(), **NEWCOMER)
    assert create_account(context(), **NEWCOMER) == made
    assert len(directory.accounts()) == 1


def test_a_key_with_quotes_finds_its_account_and_no_other(directory: Directory) -> None:
    other = create_account(context("one"), **NEWCOMER)
    key = 'x" or externalId eq "one'
    mine = create_account(context(key), **{**NEWCOMER, "username": "nia2"})
    assert mine != other
    assert create_account(context(key), **{**NEWCOMER, "username": "nia2"}) == mine


@pytest.mark.parametrize("external_id", [None, "of another call"])
def test_an_existing_account_is_never_adopted(
    directory: Directory, external_id: str | None
) -> None:
    theirs = create_account(context("theirs"), **NEWCOMER)
    (account,) = directory.accounts()
    account.external_id = external_id
    directory.storage.update(USERS, account, expected_version=account.meta.version)
    with pytest.raises(ToolError, match=r"the username new\.hire is taken"):
        create_account(context("ours"), **NEWCOMER)
    assert [one.id for one in directory.accounts()] == [theirs["id"]]


def test_privileges_replace_the_earlier_ones(directory: Directory) -> None:
    made = create_account(context(), **NEWCOMER)
    for level in (2, 3, 3):
        result = set_privileges(
            context(), account_id=made["id"], username="new.hire", security_level=level
        )
        assert result == {"username": "new.hire", "roles": [{"value": f"security-level-{level}"}]}
        assert json.loads(json.dumps(result)) == result
    assert _roles(directory) == [["security-level-3"]]


def test_privileges_go_only_to_the_account_that_was_named(directory: Directory) -> None:
    made = create_account(context(), **NEWCOMER)
    with pytest.raises(ToolError, match="does not belong to bob"):
        set_privileges(context(), account_id=made["id"], username="bob", security_level=3)
    with pytest.raises(ToolError, match=r"the directory refused: .*not found"):
        set_privileges(context(), account_id="gone", username="new.hire", security_level=3)
    assert _roles(directory) == [[]]


def test_an_id_cannot_lead_elsewhere_in_the_directory(directory: Directory) -> None:
    create_account(context(), **NEWCOMER)
    with pytest.raises((ToolError, SCIMClientException, ValueError)):
        set_privileges(context(), account_id="../Users?x=", username="new.hire", security_level=3)
    assert _roles(directory) == [[]]


def test_a_wrong_token_is_told_to_the_model(directory: Directory, settings: Settings) -> None:
    settings.SCIM_TOKEN = "guess"
    with pytest.raises(ToolError, match="the directory refused"):
        create_account(context(), **NEWCOMER)
    assert directory.accounts() == []


def test_an_unreachable_directory_allows_another_attempt(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        settings.SCIM_URL = f"http://127.0.0.1:{closed.getsockname()[1]}/v2"
    settings.SCIM_TOKEN = "any"
    with pytest.raises(NotDone):
        create_account(context(), **NEWCOMER)


def test_a_silent_directory_fails_at_the_deadline(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.SCIM_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/v2"
        settings.SCIM_TOKEN = "any"
        with pytest.raises(NotDone):
            create_account(context(deadline=0.1), **NEWCOMER)


def test_an_application_is_added_and_the_privileges_stay(directory: Directory) -> None:
    made = create_account(context(), **NEWCOMER)
    who = {"account_id": made["id"], "username": "new.hire"}
    set_privileges(context(), **who, security_level=3)
    for application in ("intranet", "payroll", "intranet"):
        granted = grant_application_access(context(), **who, application=application)
        assert granted == {"username": "new.hire", "application": application}
    (account,) = directory.accounts()
    assert [one.value for one in account.entitlements] == [
        "application-intranet",
        "application-payroll",
    ]
    assert _roles(directory) == [["security-level-3"]]
    set_privileges(context(), **who, security_level=4)
    (account,) = directory.accounts()
    assert len(account.entitlements) == 2
    with pytest.raises(ToolError, match="does not belong to bob"):
        grant_application_access(
            context(), account_id=made["id"], username="bob", application="intranet"
        )


@dataclass(slots=True)
class Failing:
    """A directory that takes requests of one method with a status, or hangs up on them."""

    method: str
    status: int | None


@pytest.fixture
def failing(settings: Settings) -> Iterator[Failing]:
    failing = Failing("GET", 429)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if failing.method == "GET":
                self._fail()
            else:
                self._answer(200, {"totalResults": 0, "Resources": [], "schemas": [LIST]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._fail()

        def _fail(self) -> None:
            if failing.status is not None:
                self._answer(failing.status, {"schemas": [ERROR], "status": str(failing.status)})

        def _answer(self, status: int, body: dict[str, Any]) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/scim+json")
            self.send_header("Retry-After", "7")
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    settings.SCIM_URL = f"http://127.0.0.1:{server.server_port}/v2"
    settings.SCIM_TOKEN = "any"
    yield failing
    server.shutdown()
    thread.join()
    server.server_close()


LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"


@pytest.mark.parametrize(
    ("method", "status", "after"),
    [
        ("GET", 408, 7.0),
        ("GET", 425, 7.0),
        ("GET", 429, 7.0),
        ("GET", 500, 7.0),
        ("GET", 503, 7.0),
        ("GET", None, None),
        ("POST", 412, 7.0),
        ("POST", 429, 7.0),
    ],
)
def test_a_passing_fault_before_anything_happened_is_certain(
    failing: Failing, method: str, status: int | None, after: float | None
) -> None:
    failing.method, failing.status = method, status
    with pytest.raises(NotDone) as caught:
        create_account(context(), **NEWCOMER)
    assert caught.value.after == after


@pytest.mark.parametrize("status", [500, 503, None])
def test_a_write_that_fails_on_their_side_may_have_happened(
    failing: Failing, status: int | None
) -> None:
    failing.method, failing.status = "POST", status
    with pytest.raises((SCIMClientException, SCIMException)):
        create_account(context(), **NEWCOMER)


@pytest.mark.parametrize(("method", "status"), [("GET", 403), ("POST", 400)])
def test_a_refusal_is_told_to_the_model(failing: Failing, method: str, status: int) -> None:
    failing.method, failing.status = method, status
    with pytest.raises(ToolError, match="the directory refused"):
        create_account(context(), **NEWCOMER)
