"""Clients that read nothing: their answers hold no thread, and their connections end."""

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from uvicorn import Server

from tests.support.api_client import Caller
from tests.support.people import until

pytestmark = pytest.mark.filterwarnings("ignore:No directory at")  # of static files

READERS = 40
FILE_BYTES = 1024 * 1024
SECONDS = 30.0


@pytest.fixture
def large_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "large.js").write_bytes(b"x" * FILE_BYTES)
    monkeypatch.setattr(settings, "STATIC_ROOT", tmp_path)


@pytest.fixture
def server(large_file: None, web_server: Server) -> Server:
    """The web, with one static file."""
    return web_server


@pytest.fixture
def ask_unread(server: Server) -> Iterator[Callable[[str, str], None]]:
    """Send 20 requests at once, and read no answer."""
    with ExitStack() as stack:

        def ask(path: str, token: str = "") -> None:
            client = stack.enter_context(socket.socket())
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            client.connect(_address(server))
            head = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n"
            client.sendall(20 * head.encode())

        yield ask


def _address(server: Server) -> tuple[str, int]:
    host, port = server.servers[0].sockets[0].getsockname()
    return host, port


def _status_of(server: Server, path: str) -> int:
    other = http.client.HTTPConnection(*_address(server), timeout=SECONDS)
    try:
        other.request("GET", path, headers={"Host": "localhost"})
        return other.getresponse().status
    finally:
        other.close()


def test_unread_answers_hold_up_nobody(
    server: Server, ask_unread: Callable[..., None], ada_api: Caller
) -> None:
    token = ada_api.client.defaults["HTTP_AUTHORIZATION"]
    for _ in range(READERS // 2):
        ask_unread("/static/large.js")
        ask_unread("/api/v1/openapi.json", token)
    assert _status_of(server, "/login/") == HTTPStatus.OK


def test_a_connection_on_which_nothing_moves_ends(
    server: Server, ask_unread: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    from config import web

    ended = threading.Event()
    lose = web.Protocol.connection_lost

    def tell(protocol: Any, exc: Exception | None) -> None:
        lose(protocol, exc)
        ended.set()

    monkeypatch.setattr(web, "UNREAD_SECONDS", 0.05)
    monkeypatch.setattr(web.Protocol, "connection_lost", tell)
    ask_unread("/static/large.js")
    assert ended.wait(SECONDS)


@pytest.mark.parametrize("paths", [["/events/", "/healthz"], ["/healthz", "/events/", "/healthz"]])
def test_a_live_page_ends_with_its_connection_also_before_another_request(
    server: Server, bea: Client, paths: list[str]
) -> None:
    from config import asgi

    until(lambda: asgi.live_server.connected.is_set() or None, "the subscription")
    name = settings.SESSION_COOKIE_NAME
    head = f"HTTP/1.1\r\nHost: localhost\r\nCookie: {name}={bea.cookies[name].value}\r\n\r\n"
    received = b""
    with socket.create_connection(_address(server), timeout=SECONDS) as client:
        client.sendall("".join(f"GET {path} {head}" for path in paths).encode())
        while b": open" not in received:
            received += client.recv(1024) or pytest.fail(f"no live page: {received!r}")
    until(lambda: not server.server_state.tasks or None, "the live page to end")


def test_the_document_of_the_api_is_made_once() -> None:
    from config.api import api

    assert api.get_openapi_schema() is api.get_openapi_schema()
