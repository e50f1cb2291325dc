"""Serves the SCIM directory on a socket inherited from the launcher.

Its token is in the environment, because every user of the machine can read command lines.

Its resources are in SQLite, and it answers from memory. A write is flushed to disk before it is confirmed. If SQLite
refuses a write, memory drops it too. Search, uniqueness and paging come from scim2-server's own storage.
"""

import hmac
import json
import logging
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, cast
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from scim2_models import Resource, ResourceType, ScimProvider, UnauthorizedException
from scim2_server.applications.wsgi import WSGIApplication
from scim2_server.memory import InMemoryStorage
from scim2_server.requests import ScimRequest
from scim2_server.testserver.application import BEARER_TOKEN_SCHEME
from scim2_server.utils import (
    load_default_resource_types,
    load_default_schemas,
    load_default_service_provider_config,
)

from config.local.servers.directory import TOKEN_VARIABLE

_TABLES = """
    CREATE TABLE IF NOT EXISTS resource (
        type TEXT NOT NULL, id TEXT NOT NULL, body TEXT NOT NULL, PRIMARY KEY (type, id)
    ) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS version (last INTEGER NOT NULL);
    INSERT INTO version SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM version);
"""


class SqliteStorage(InMemoryStorage):
    """A storage whose file belongs to one process. Its threads write one at a time, under the storage's lock."""

    def __init__(self, path: Path, provider: ScimProvider) -> None:
        super().__init__()
        self._models = {
            kind.name: cast("type[Resource[Any]]", provider.model_for(kind))
            for kind in provider.resource_types
        }
        self._file = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._file.execute("PRAGMA journal_mode = WAL")
        self._file.execute("PRAGMA synchronous = FULL")
        self._file.executescript(_TABLES)
        self._load()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def next_version(self) -> str:
        """Return the next version. Versions continue after a restart, so an old one never matches another resource."""
        (last,) = self._file.execute("UPDATE version SET last = last + 1 RETURNING last").fetchone()
        return f'W/"{last}"'

    def create(self, resource_type: ResourceType, resource: Resource[Any]) -> Resource[Any]:
        """Store a new resource."""
        with self._writing():
            stored = super().create(resource_type, resource)
            self._save(resource_type, stored)
            return stored

    def update(
        self,
        resource_type: ResourceType,
        resource: Resource[Any],
        *,
        expected_version: str | None = None,
    ) -> Resource[Any]:
        """Replace a resource."""
        with self._writing():
            stored = super().update(resource_type, resource, expected_version=expected_version)
            self._save(resource_type, stored)
            return stored

    def delete(
        self,
        resource_type: ResourceType,
        resource_id: str,
        *,
        expected_version: str | None = None,
    ) -> None:
        """Delete a resource."""
        with self._writing():
            super().delete(resource_type, resource_id, expected_version=expected_version)
            self._file.execute(
                "DELETE FROM resource WHERE type = ? AND id = ?", (resource_type.name, resource_id)
            )

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Write to the file and to memory. If one fails, roll the file back and reload memory from it."""
        with self.lock:
            self._file.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._file.execute("COMMIT")
            except BaseException:
                if self._file.in_transaction:
                    self._file.execute("ROLLBACK")
                self._load()
                raise

    def _save(self, resource_type: ResourceType, stored: Resource[Any]) -> None:
        self._file.execute(
            "INSERT INTO resource (type, id, body) VALUES (?, ?, ?)"
            " ON CONFLICT (type, id) DO UPDATE SET body = excluded.body",
            (resource_type.name, stored.id, json.dumps(stored.model_dump())),
        )

    def _load(self) -> None:
        rows = self._file.execute("SELECT type, body FROM resource").fetchall()
        self.resources = [
            self._models[name].model_validate(json.loads(body)) for name, body in rows
        ]


class Directory(WSGIApplication):
    """A SCIM application that accepts one bearer token."""

    def __init__(self, storage: SqliteStorage, provider: ScimProvider, token: str) -> None:
        super().__init__(storage, provider)
        self.token = token

    def check_auth(self, request: ScimRequest) -> None:
        """Raise UnauthorizedException unless the request has the token."""
        scheme, _, token = (request.header("Authorization") or "").partition(" ")
        right = hmac.compare_digest(token.encode(), self.token.encode())
        if scheme.lower() != "bearer" or not right:
            raise UnauthorizedException


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 30  # seconds after which a silent client releases its thread

    def address_string(self) -> str:
        return str(self.client_address[0])


def build_provider() -> ScimProvider:
    """Build a provider with the schemas of RFC 7643, all features of the protocol, and bearer tokens."""
    config = load_default_service_provider_config()
    config.authentication_schemes = [BEARER_TOKEN_SCHEME]
    return ScimProvider.from_discovery(
        load_default_schemas().values(), load_default_resource_types().values(), config=config
    )


def serve(listener: socket.socket, file: Path, token: str) -> None:
    """Answer until SIGTERM."""
    described = build_provider()
    storage = SqliteStorage(file, described)
    application = Directory(storage, described, token)
    address: Any = listener.getsockname()[:2]
    server = _ThreadingServer(address, _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = address
    server.setup_environ()
    server.set_app(application)
    signal.signal(signal.SIGTERM, _exit)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        with storage.lock:  # waits for a running write
            storage.close()


def _exit(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), os.environ[TOKEN_VARIABLE])
