"""Accounts in a real SCIM directory over HTTP, and the welcome mail to a real SMTP server, on loopback."""

import smtplib
import socket
import time
from functools import partial
from typing import Any

import pytest
from httpx2 import Client, MockTransport, RemoteProtocolError, Request, Response
from pytest_django import Settings
from scim2_client import SCIMClientException
from scim2_models import SCIMException
from scim2_server.utils import load_default_resource_types

from agents.errors import NotDone, ToolError
from agents.tools import scim
from agents.tools.directory import create_account, grant_application_access, set_privileges
from agents.tools.mail import send_welcome_mail
from tests.agents.conftest import Directory, context
from tests.support.mail import Sink
from tests.support.specs import CREATE

USERS = load_default_resource_types()["User"]
LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
IN_DOUBT = (SCIMClientException, SCIMException)
ZOE = {"full_name": "Zoë O’Neill", "email": "zoe@example.com", "username": "zoe"}


def _roles(directory: Directory) -> list[Any]:
    return [[role.value for role in account.roles or []] for account in directory.accounts()]


def test_a_call_makes_one_account_with_its_data_and_key(directory: Directory) -> None:
    made = create_account(context("r/0/c1.0"), **CREATE.args)
    assert create_account(context("r/0/c1.0"), **CREATE.args) == made
    (account,) = directory.accounts()
    assert made == {"id": account.id, "username": "new.hire"}
    assert account.external_id == "r/0/c1.0"
    assert account.display_name == account.name.formatted == "New Hire"
    assert [email.value for email in account.emails] == ["new.hire@example.com"]
    assert (account.active, account.roles or []) == (True, [])


def test_a_key_with_quotes_finds_its_account_and_no_other(directory: Directory) -> None:
    other = create_account(context("one"), **CREATE.args)
    key = 'x" or externalId eq "one'
    mine = create_account(context(key), **{**CREATE.args, "username": "nia2"})
    assert mine != other
    assert create_account(context(key), **{**CREATE.args, "username": "nia2"}) == mine


def test_an_existing_account_is_never_adopted(directory: Directory) -> None:
    theirs = create_account(context("theirs"), **CREATE.args)
    for external_id in (None, "of another call"):
        (account,) = directory.accounts()
        account.external_id = external_id
        directory.storage.update(USERS, account, expected_version=account.meta.version)
        with pytest.raises(ToolError, match=r"the username new\.hire is taken"):
            create_account(context("ours"), **CREATE.args)
    assert [one.id for one in directory.accounts()] == [theirs["id"]]


def test_privileges_replace_earlier_ones_and_applications_are_added(directory: Directory) -> None:
    who = {"account_id": create_account(context(), **CREATE.args)["id"], "username": "new.hire"}
    for level in (2, 3, 3):
        result = set_privileges(context(), **who, security_level=level)
        assert result == {"username": "new.hire", "roles": [{"value": f"security-level-{level}"}]}
    for application in ("intranet", "payroll", "intranet"):
        granted = grant_application_access(context(), **who, application=application)
        assert granted == {"username": "new.hire", "application": application}
    assert _roles(directory) == [["security-level-3"]]
    set_privileges(context(), **who, security_level=4)
    (account,) = directory.accounts()
    given = ["application-intranet", "application-payroll"]
    assert [one.value for one in account.entitlements] == given


def test_rights_go_only_to_the_account_that_was_named(directory: Directory) -> None:
    bob = {"account_id": create_account(context(), **CREATE.args)["id"], "username": "bob"}
    with pytest.raises(ToolError, match="does not belong to bob"):
        set_privileges(context(), **bob, security_level=3)
    with pytest.raises(ToolError, match="does not belong to bob"):
        grant_application_access(context(), **bob, application="intranet")
    with pytest.raises(ToolError, match=r"the directory refused: .*not found"):
        set_privileges(context(), account_id="gone", username="new.hire", security_level=3)
    with pytest.raises((ToolError, SCIMClientException, ValueError)):
        set_privileges(context(), account_id="../Users?x=", username="new.hire", security_level=3)
    (account,) = directory.accounts()
    account.user_name = None  # such an account belongs to no person
    directory.storage.update(USERS, account, expected_version=account.meta.version)
    with pytest.raises(ToolError, match="does not belong to"):
        set_privileges(context(), **bob | {"username": ""}, security_level=3)
    assert _roles(directory) == [[]]


def test_a_directory_that_does_not_answer_allows_another_attempt(settings: Settings) -> None:
    settings.SCIM_TOKEN = "any"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        settings.SCIM_URL = f"http://127.0.0.1:{silent.getsockname()[1]}/v2"
        began_at = time.monotonic()
        with pytest.raises(NotDone):
            create_account(context(deadline=0.1), **CREATE.args)
    assert time.monotonic() - began_at < 10


@pytest.mark.parametrize(
    ("method", "statuses", "error"),
    [
        ("GET", [408, 425, 429, 500, 503, None], NotDone),  # before anything happened
        ("POST", [412, 429], NotDone),
        ("POST", [500, 503, None], IN_DOUBT),  # a write may have happened
        ("GET", [403], ToolError),
        ("POST", [400], ToolError),
    ],
)
def test_a_fault_is_certain_in_doubt_or_told_to_the_model(
    settings: Settings, monkeypatch: Any, method: str, statuses: list[int | None], error: Any
) -> None:
    def answer(request: Request) -> Response:
        if request.method != method:
            return Response(200, json={"totalResults": 0, "Resources": [], "schemas": [LIST]})
        if status is None:
            raise RemoteProtocolError("the directory hung up")
        body = {"schemas": [ERROR], "status": str(status)}
        return Response(status, headers={"Retry-After": "7"}, json=body)

    monkeypatch.setattr(scim, "Client", partial(Client, transport=MockTransport(answer)))
    settings.SCIM_URL, settings.SCIM_TOKEN = "http://directory.example/v2", "any"
    for status in statuses:
        with pytest.raises(error) as caught:
            create_account(context(), **CREATE.args)
        if isinstance(caught.value, NotDone):
            assert caught.value.after == (7.0 if status else None)
        assert isinstance(caught.value, ToolError | NotDone) is (error is not IN_DOUBT)


def test_the_mail_reaches_only_its_recipient(sink: Sink) -> None:
    ids = [send_welcome_mail(context(key), **ZOE)["message_id"] for key in ("a", "a", "b")]
    assert ids[0] == ids[1] != ids[2]  # the same for every attempt at one call
    assert [mail["Message-ID"] for mail in sink.mails] == ids
    mail = sink.mails[0]
    assert mail["To"] == "zoe@example.com"
    assert mail["From"] == "Signoff <desk@signoff.example>"
    text = mail.get_payload(decode=True)
    assert isinstance(text, bytes)
    assert "Hello Zoë O’Neill" in text.decode()
    assert "Your username is zoe." in text.decode()


def test_a_server_that_is_away_means_that_nothing_was_sent(sink: Sink, settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        settings.EMAIL_PORT = closed.getsockname()[1]
    with pytest.raises(NotDone, match="cannot be reached"):
        send_welcome_mail(context(), **ZOE)


def test_a_mail_the_server_refuses_was_not_sent(sink: Sink) -> None:
    for answer, error in (("554 no thanks", ToolError), ("451 try again later", NotDone)):
        sink.answers.append(answer)
        with pytest.raises(error, match=answer[4:]):
            send_welcome_mail(context(), **ZOE)
    assert sink.mails == []


def test_losing_the_connection_after_the_mail_leaves_it_in_doubt(sink: Sink) -> None:
    sink.cut = True
    with pytest.raises((smtplib.SMTPServerDisconnected, ConnectionError)):
        send_welcome_mail(context(), **ZOE)
    assert len(sink.mails) == 1
