"""Fixtures: runs started and suspended by the engine, with scripted agents."""

import socket
import threading
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from a2wsgi import WSGIMiddleware
from django.core.wsgi import get_wsgi_application
from django.db import connections
from uvicorn import Server

from approvals.models import Approval
from tests.support.api_client import Caller
from tests.support.office import Office
from tests.support.openid_provider import OpenIDProvider, openid_provider
from tests.support.pages import log_in
from tests.support.people import until
from tests.support.seeds import Cast, object_of
from tests.support.seeds import published as publish
from tests.web.matrix import places

__all__ = ["places"]  # the fixture with everything that the matrix names

# Each person with a browser, and those with a token of every scope
ada, bea, cyril, admin = (
    pytest.fixture(lambda cast, name=name: log_in(getattr(cast, name)))
    for name in ("ada", "bea", "cyril", "admin")
)
ada_api, bea_api, admin_api = (
    pytest.fixture(lambda cast, name=name: Caller(getattr(cast, name)))
    for name in ("ada", "bea", "admin")
)


@pytest.fixture(scope="module")
def running() -> Iterator[OpenIDProvider]:
    with openid_provider() as provider:
        yield provider


@pytest.fixture
def published(cast: Cast) -> None:
    """Publish hr_onboarding in the catalogue, as a worker does."""
    kinds = {"full_name": "string", "username": "string", "security_level": "integer"}
    schema = object_of(**{name: {"type": kind} for name, kind in kinds.items()})
    publish(input_schema=schema, tools=[], subagents=[], steps=None)


@pytest.fixture
def asked(office: Office, suspended: UUID) -> Approval:
    """The request for which Ada's run waits."""
    return office.request(suspended)


@pytest.fixture
def doubt(office: Office) -> Approval:
    """The request about a call in doubt: the welcome mail of Ada's run."""
    return office.in_doubt_request(office.in_doubt())


@pytest.fixture
def web_server(
    live_broker: str, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Server]:
    """The web's own application. It has one thread, which no waiting call holds."""
    from config import asgi, web
    from runtime import broker
    from runtime.web.live import LiveServer

    application: Any = get_wsgi_application()
    django: Any = WSGIMiddleware(application, workers=1)
    monkeypatch.setattr(asgi, "_django", django)
    monkeypatch.setattr(asgi, "live_server", LiveServer())
    monkeypatch.setattr(web, "live_server", asgi.live_server)
    monkeypatch.setattr(broker, "_notifier", None)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = web.build_server(fd=listener.fileno())
        thread = threading.Thread(target=server.run)
        thread.start()
        until(lambda: server.started or None, "the server to start")
        yield server
        server.should_exit = True
        thread.join(60.0)
    django.executor.submit(connections.close_all).result(60.0)
    django.executor.shutdown()


@pytest.fixture
def web(web_server: Server) -> str:
    """The address of the web's own application."""
    host, port = web_server.servers[0].sockets[0].getsockname()
    return f"http://{host}:{port}"
