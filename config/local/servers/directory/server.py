"""Serves the SCIM directory on a socket inherited from the launcher.

Its token is in the environment, because every user of the machine can read command lines.
"""

import hmac
import logging
import os
import signal
import socket
import sys
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from scim2_models import ScimProvider, UnauthorizedException
from scim2_server.applications.wsgi import WSGIApplication
from scim2_server.requests import ScimRequest
from scim2_server.testserver.application import BEARER_TOKEN_SCHEME
from scim2_server.utils import (
    load_default_resource_types,
    load_default_schemas,
    load_default_service_provider_config,
)

from config.local.servers.directory import TOKEN_VARIABLE
from config.local.servers.directory.storage import SqliteStorage


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


def provider() -> ScimProvider:
    """Build a provider with the schemas of RFC 7643, all features of the protocol, and bearer tokens."""
    config = load_default_service_provider_config()
    config.authentication_schemes = [BEARER_TOKEN_SCHEME]
    return ScimProvider.from_discovery(
        load_default_schemas().values(), load_default_resource_types().values(), config=config
    )


def serve(listener: socket.socket, file: Path, token: str) -> None:
    """Answer until SIGTERM."""
    described = provider()
    storage = SqliteStorage(file, described)
    server = _server(listener, Directory(storage, described, token))
    signal.signal(signal.SIGTERM, _exit)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
    finally:
        with storage.lock:  # waits for a running write
            storage.close()


class _ThreadingServer(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Handler(WSGIRequestHandler):
    timeout = 30  # seconds after which a silent client releases its thread

    def address_string(self) -> str:
        return str(self.client_address[0])


def _server(listener: socket.socket, application: Directory) -> WSGIServer:
    address: Any = listener.getsockname()[:2]
    server = _ThreadingServer(address, _Handler, bind_and_activate=False)
    server.socket.close()
    server.socket = listener
    server.server_name, server.server_port = address
    server.setup_environ()
    server.set_app(application)
    return server


def _exit(*_: Any) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    serve(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]), os.environ[TOKEN_VARIABLE])
