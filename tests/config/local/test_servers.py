"""The servers of the demo: the directory keeps its resources and requires its token; the mailbox keeps its mail."""

import asyncio
import io
import json
import smtplib
import socket
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults

import pytest
from scim2_server.utils import load_default_provider

from config.local.servers import mailbox
from config.local.servers.directory.server import Directory, SqliteStorage, build_provider


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "directory.sqlite3"


@pytest.fixture
def storage(file: Path) -> Iterator[SqliteStorage]:
    storage = SqliteStorage(file, load_default_provider())
    yield storage
    storage.close()


def _user(name: str, external_id: str) -> dict[str, Any]:
    schemas, roles = ["urn:ietf:params:scim:schemas:core:2.0:User"], [{"value": "security-level-2"}]
    return {"schemas": schemas, "userName": name, "externalId": external_id, "roles": roles}


def _ask(
    storage: SqliteStorage,
    method: str,
    path: str,
    *,
    token: str = "right",
    body: dict[str, Any] | None = None,
) -> tuple[int, dict[str, Any]]:
    data = json.dumps(body).encode() if body is not None else b""
    answered: list[str] = []
    path, _, query = path.partition("?")
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": "application/scim+json",
        "CONTENT_LENGTH": str(len(data)),
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "wsgi.input": io.BytesIO(data),
    }
    setup_testing_defaults(environ)
    application = Directory(storage, build_provider(), "right")
    said = b"".join(application(environ, lambda status, *_: answered.append(status)))  # type: ignore[arg-type]
    return int(answered[0].split()[0]), json.loads(said) if said else {}


def test_a_user_is_found_by_its_external_id_with_its_roles(storage: SqliteStorage) -> None:
    _ask(storage, "POST", "/v2/Users", body=_user("new.hire", "run/0/c1.0"))
    filtered = "/v2/Users?filter=externalId%20eq%20%22run%2F0%2Fc1.0%22"
    status, found = _ask(storage, "GET", filtered)
    assert status == 200
    assert [user["userName"] for user in found["Resources"]] == ["new.hire"]
    assert found["Resources"][0]["roles"] == [{"value": "security-level-2"}]


def test_changes_outlive_a_restart_and_need_the_token(file: Path, storage: SqliteStorage) -> None:
    _, gone = _ask(storage, "POST", "/v2/Users", body=_user("old.hire", "b"))
    assert _ask(storage, "DELETE", f"/v2/Users/{gone['id']}")[0] == 204
    status, made = _ask(storage, "POST", "/v2/Users", body=_user("new.hire", "a"))
    assert status == 201
    assert _ask(storage, "POST", "/v2/Users", body=_user("NEW.hire", "c"))[0] == 409
    for token in ("wrong", "rïght"):
        assert _ask(storage, "GET", "/v2/Users", token=token)[0] == 401
    storage.close()
    again = SqliteStorage(file, load_default_provider())
    assert _ask(again, "GET", f"/v2/Users/{gone['id']}")[0] == 404
    status, found = _ask(again, "GET", f"/v2/Users/{made['id']}")
    assert (status, found["meta"]["version"]) == (200, made["meta"]["version"])
    _, changed = _ask(again, "PUT", f"/v2/Users/{made['id']}", body=_user("new.name", "a"))
    assert changed["meta"]["version"] != made["meta"]["version"]
    again.close()


def test_a_write_that_the_file_refuses_is_forgotten(file: Path, storage: SqliteStorage) -> None:
    with sqlite3.connect(file) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON resource BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
    other.close()
    assert _ask(storage, "POST", "/v2/Users", body=_user("new.hire", "a"))[0] == 500
    assert storage.resources == []


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield a sink that stores its mail in tmp_path."""
    loop = asyncio.new_event_loop()
    listener = socket.create_server(("127.0.0.1", 0))
    server = loop.run_until_complete(mailbox.listen(listener, tmp_path))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield listener.getsockname()[1]
    loop.call_soon_threadsafe(server.close)
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.run_until_complete(server.wait_closed())
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


PEOPLE = ("hr@example.org", "new@example.org")


def test_a_confirmed_message_is_stored_as_one_file(tmp_path: Path, port: int) -> None:
    with smtplib.SMTP("127.0.0.1", port) as client:
        for subject in ("one", "two"):
            client.sendmail(*PEOPLE, f"Subject: {subject}\n\nWelcome.")
            assert any(f"Subject: {subject}" in kept.read_text() for kept in tmp_path.glob("*.eml"))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_message_that_cannot_be_kept_is_refused_for_now(tmp_path: Path, port: int) -> None:
    tmp_path.rmdir()
    with smtplib.SMTP("127.0.0.1", port) as client, pytest.raises(smtplib.SMTPDataError) as refused:
        client.sendmail(*PEOPLE, "Subject: lost")
    assert refused.value.smtp_code == 451
    tmp_path.mkdir()
