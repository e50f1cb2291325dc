"""The settings that a deployment depends on."""

import asyncio
import gzip
import ssl
from importlib import import_module
from pathlib import Path

import pytest
from celery.worker.control import Panel
from django.test import Client
from kombu.connection import Connection
from pytest_django import Settings

from config import celery
from config.broker import consumer, transport
from config.env.environment import ROOT
from runtime.web.live import Message, Receive, Send
from tests.support import commands


def test_a_deployment_on_https_passes_every_check_of_django() -> None:
    done = commands.manage(
        "check",
        "--deploy",
        "--fail-level",
        "WARNING",
        env={
            "PUBLIC_URL": "https://signoff.example",
            "BEHIND_PROXY": "yes",
            "SECRET_KEY_FILE": str(ROOT / "manage.py"),  # any text of that length
        },
    )
    assert done.returncode == 0, done.stderr


def test_the_web_alone_bounds_its_reads_of_the_object_store(tmp_path: Path) -> None:
    script = (
        "import django; django.setup()\n"
        "from runtime.ports import wiring\n"
        "print(type(wiring.find_object_store()).__name__)\n"
        "import config.asgi\n"
        "print(type(wiring.find_object_store()).__name__)"
    )
    env = {"SIGNOFF_OBJECT_STORE": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    done = commands.python("-c", script, env=env)
    assert done.stdout.split() == ["Folder", "BoundedReads"], done.stderr


@pytest.mark.parametrize(
    ("redis_url", "found"),
    [
        ("unix:///run/b.sock", {"hostname": "socket:///run/b.sock"}),
        ("redis://:secret@h:1/2", {"hostname": "h", "port": 1, "password": "secret"}),
        ("rediss://h", {"hostname": "h", "ssl": {"ssl_cert_reqs": ssl.CERT_REQUIRED}}),
        ("rediss://h?ssl_cert_reqs=none", {"ssl": {"ssl_cert_reqs": ssl.CERT_NONE}}),
    ],
)
def test_the_broker_is_found_where_redis_url_says(redis_url: str, found: dict[str, object]) -> None:
    told = transport.build_celery_settings(redis_url)
    kombus = Connection(told["broker_url"], ssl=told["broker_use_ssl"])
    assert isinstance(kombus.transport, transport.Transport)
    assert {name: getattr(kombus, name) for name in found} == found


def test_access_to_the_broker_runs_no_code() -> None:
    assert celery.app.conf.accept_content == ["json"]
    assert celery.app.conf.broker_transport_options["socket_timeout"] <= 5


def test_every_command_of_celery_is_kept_or_refused() -> None:
    """If a Celery release adds a command, list it in KEPT if it only reads a worker's state, else in REFUSED."""
    assert set(Panel.data) == consumer.KEPT | consumer.REFUSED
    refused = {name for name, command in Panel.data.items() if command is Panel.data["shutdown"]}
    assert refused == consumer.REFUSED


@pytest.mark.django_db
def test_behind_a_proxy_only_https_and_health_are_answered(settings: Settings) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    client = Client()
    assert client.get("/login/").status_code == 301
    assert client.get("/login/", headers={"X-Forwarded-Proto": "https"}).status_code == 200
    assert client.get("/healthz").status_code == client.get("/metrics").status_code == 200
    assert client.get("/readyz").status_code == 503


# The server of the web


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
