"""The directory stores its resources, follows the protocol's contract, and requires its token."""

import io
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from scim2_server.utils import load_default_provider

from config.local.servers.directory.server import Directory, provider
from config.local.servers.directory.storage import SqliteStorage


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "directory.sqlite3"


@pytest.fixture
def storage(file: Path) -> Iterator[SqliteStorage]:
    storage = SqliteStorage(file, load_default_provider())
    yield storage
    storage.close()


def _user(name: str, external_id: str) -> dict[str, Any]:
    return {
        "schemas": ["urn:ietf:params:scim:schemas:core:2.0:User"],
        "userName": name,
        "externalId": external_id,
        "roles": [{"value": "security-level-2"}],
    }


def _ask(
    storage: SqliteStorage,
    method: str,
    path: str,
    *,
    token: str = "right",
    query: str = "",
    body: dict[str, Any] | None = None,
) -> tuple[int, dict[str, Any]]:
    """Send the application one request, as a WSGI server does."""
    data = json.dumps(body).encode() if body is not None else b""
    answered: list[str] = []
    environ = {
        "REQUEST_METHOD": method,
        "PATH_INFO": path,
        "QUERY_STRING": query,
        "CONTENT_TYPE": "application/scim+json",
        "CONTENT_LENGTH": str(len(data)),
        "HTTP_AUTHORIZATION": f"Bearer {token}",
        "SERVER_NAME": "127.0.0.1",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(data),
    }
    application = Directory(storage, provider(), "right")
    said = b"".join(application(environ, lambda status, *_: answered.append(status)))  # type: ignore[arg-type]
    return int(answered[0].split()[0]), json.loads(said) if said else {}


def test_a_user_is_found_by_its_external_id_with_its_roles(storage: SqliteStorage) -> None:
    _ask(storage, "POST", "/v2/Users", body=_user("new.hire", "run/0/c1.0"))
    status, found = _ask(
        storage, "GET", "/v2/Users", query="filter=externalId%20eq%20%22run%2F0%2Fc1.0%22"
    )
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


def test_a_write_that_the_file_refuses_is_not_remembered(
    file: Path, storage: SqliteStorage
) -> None:
    with sqlite3.connect(file) as other:
        other.execute(
            "CREATE TRIGGER full BEFORE INSERT ON resource BEGIN SELECT RAISE(FAIL, 'full'); END"
        )
    other.close()
    assert _ask(storage, "POST", "/v2/Users", body=_user("new.hire", "a"))[0] == 500
    assert storage.resources == []
