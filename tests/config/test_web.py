"""The web process: a request gets a thread when its body is complete, and headers keep their meaning."""

import asyncio
import gzip
from importlib import import_module

import pytest
from django.test import Client

from runtime.web.live import Message, Receive, Send

LIMIT = 2 * 1024 * 1024


class Seen:
    scope: Message | None = None
    headers: dict[bytes, bytes] | None = None
    body: bytes | None = None
    status: int | None = None

    async def django(self, scope: Message, receive: Receive, _: Send) -> None:
        self.scope, self.body = scope, (await receive())["body"]
        self.headers = dict(scope["headers"])

    async def send(self, message: Message) -> None:
        self.status = message.get("status", self.status)


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    seen = Seen()
    monkeypatch.setattr(import_module("config.asgi"), "_django", seen.django)
    return seen


def _ask(
    seen: Seen, *sent: Message, query: bytes = b"", headers: dict[str, str] | None = None
) -> None:
    pieces = iter(sent)

    async def receive() -> Message:
        for piece in pieces:
            return piece
        await asyncio.Event().wait()
        raise AssertionError

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/",
        "query_string": query,
        "headers": [(name.encode(), value.encode()) for name, value in (headers or {}).items()],
    }
    asyncio.run(import_module("config.asgi").application(scope, receive, seen.send))


def _piece(body: bytes, *, more: bool = False) -> Message:
    return {"type": "http.request", "body": body, "more_body": more}


def test_a_body_in_pieces_arrives_whole_and_with_a_length(seen: Seen) -> None:
    _ask(seen, _piece(b"ab", more=True), _piece(b"cd"), headers={"transfer-encoding": "chunked"})
    assert seen.body == b"abcd"
    assert seen.headers == {b"content-length": b"4"}


def test_a_slow_sender_takes_no_thread(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("config.asgi"), "BODY_SECONDS", 0.05)
    _ask(seen, _piece(b"a", more=True))
    assert (seen.scope, seen.status) == (None, 408)
    seen.status = None
    _ask(seen, _piece(b"a", more=True), {"type": "http.disconnect"})
    assert (seen.scope, seen.status) == (None, None)


def test_no_more_is_read_than_django_looks_at(seen: Seen) -> None:
    """The web does not wait for the rest, and Django refuses the size."""
    pieces = (_piece(b"a" * LIMIT, more=True), _piece(b"bb", more=True))
    _ask(seen, *pieces, headers={"content-length": "9999999"})
    assert seen.headers
    assert int(seen.headers[b"content-length"]) > LIMIT


def test_a_header_with_an_underscore_cannot_stand_for_another(seen: Seen) -> None:
    _ask(seen, _piece(b""), headers={"x_forwarded_proto": "https", "x-other": "1"})
    assert seen.headers == {b"x-other": b"1", b"content-length": b"0"}


def test_an_address_that_is_not_encoded_is_refused(seen: Seen) -> None:
    _ask(seen, _piece(b""), query=b"q=\xff")
    assert (seen.scope, seen.status) == (None, 400)


@pytest.mark.django_db
def test_pages_are_compressed_for_clients_that_can_read_them() -> None:
    plain = Client().get("/login/")
    packed = Client().get("/login/", HTTP_ACCEPT_ENCODING="gzip")
    assert packed["Content-Encoding"] == "gzip"
    assert len(packed.content) < len(plain.content) * 0.7  # with up to a hundred random bytes
    assert b"Log in" in gzip.decompress(packed.content)
    assert "Content-Encoding" not in plain
