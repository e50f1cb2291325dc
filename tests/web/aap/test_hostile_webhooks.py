"""Receivers that hang, flood, redirect, lie about their address or have no certificate: none gets more than it may."""

import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from http.server import BaseHTTPRequestHandler
from ipaddress import ip_network
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from agentapprovalprotocol.receiver import new_secret
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import NameOID

from approvals import clock
from approvals.models import OutboxMessage
from approvals.outbox import messages, webhook
from approvals.outbox.messages import THREADS, AttemptResult, Content, MessageKind, Sender
from approvals.outbox.webhook import InvalidUrl, check_url, post
from tests.support.loopback import respond
from tests.support.people import until
from tests.support.threads import together
from tests.web.aap.receivers import serving

SECRET = new_secret()
CHUNK = b"x" * 65_536
FLOOD = 2 * 1024**3 // len(CHUNK)


@pytest.fixture(autouse=True)
def _loopback(settings: Any, db: None) -> None:  # a message bears the database's time
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = True


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "LIMIT_SECONDS", 0.5)


def told(url: str) -> AttemptResult:
    return post(url, secrets=[SECRET], message_id=str(uuid4()), body="{}")


def add(**fields: Any) -> OutboxMessage:
    values = {"kind": "test", "destination": "d", "lane": "a", "subject": str(uuid4())}
    return OutboxMessage.objects.create(next_at=clock.read_time(), **{**values, **fields})


class Kind(MessageKind):
    """Messages of a test. Those to `slow` wait until the test lets them go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.waiting: list[OutboxMessage] = []
        self.sent: list[OutboxMessage] = []

    def compose(self, message: OutboxMessage) -> Content:
        at = clock.read_time()
        return Content(body="{}", occurred_at=at, gives_up_at=at + timedelta(days=1))

    def send(self, message: OutboxMessage) -> AttemptResult:
        if message.destination == "slow":
            self.waiting.append(message)
            self.go.wait(60)
        self.sent.append(message)
        return AttemptResult(is_taken=True, text="200")


# Answers


def test_a_receiver_that_never_answers_is_left(impatient: None) -> None:
    gone = threading.Event()

    def hang(request: BaseHTTPRequestHandler, body: bytes) -> None:
        request.rfile.read(1)  # ends when the sender closes
        gone.set()

    with serving(hang) as url:
        assert told(url).text == "no answer in time"
        assert gone.wait(60)


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        (b"", "no answer in time"),
        (b"HTTP/1.1 ", "no answer in time"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", "200"),
    ],
)
def test_a_receiver_that_answers_byte_by_byte_is_left(
    impatient: None, start: bytes, answer: str
) -> None:
    def drip(request: BaseHTTPRequestHandler, body: bytes) -> None:
        request.wfile.write(start)
        with suppress(OSError):
            while True:  # until the sender closes
                request.wfile.write(b"1")
                threading.Event().wait(0.02)  # slower than a flood, faster than any timeout

    with serving(drip) as url:
        assert told(url).text == answer


@pytest.mark.parametrize(
    "start",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 2147483648\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 100 Continue\r\n\r\n" * 1000,
        b"",
    ],
)
def test_a_flood_is_not_read(impatient: None, start: bytes) -> None:
    written = [0]

    def flood(request: BaseHTTPRequestHandler, body: bytes) -> None:
        request.wfile.write(start)
        with suppress(OSError):
            for _ in range(FLOOD):
                request.wfile.write(CHUNK)
                written[0] += 1

    with serving(flood) as url:
        assert len(told(url).body) <= webhook.MAX_BODY
    assert written[0] < FLOOD / 100


def test_a_redirect_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    connected: list[Any] = []
    real = socket.create_connection

    def record(address: Any, *rest: Any) -> socket.socket:
        connected.append(address[0])
        return real(address, *rest)

    monkeypatch.setattr(socket, "create_connection", record)

    def redirect(status: int, request: BaseHTTPRequestHandler, _: bytes) -> None:
        respond(request, status, Location="http://169.254.169.254/latest/meta-data")

    for status in (301, 302, 303, 307, 308):
        with serving(partial(redirect, status)) as url:
            assert not told(url).is_taken
    assert set(connected) == {"127.0.0.1"}


@pytest.mark.parametrize(
    ("status", "after", "seconds"), [(429, "7200", 7200), (503, "7200", 7200), (500, "7200", 5)]
)
@pytest.mark.django_db(transaction=True)
def test_a_busy_receiver_says_when_to_come_again(status: int, after: str, seconds: int) -> None:
    with serving(lambda request, _: respond(request, status, Retry_After=after)) as url:
        answer = told(url)
    add(gives_up_at=clock.read_time() + timedelta(days=7))
    message = messages.claim()
    assert message is not None
    before = clock.read_time()
    messages.begin(message, None)
    messages.finish(message, answer)
    again = OutboxMessage.objects.get().next_at - before
    assert timedelta(seconds=seconds * 0.7) < again < timedelta(seconds=seconds * 1.3 + 60)


# Addresses


@pytest.mark.parametrize(
    "host",
    [
        *("127.0.0.1", "127.1", "2130706433", "0x7f000001", "0177.0.0.1", "localhost", "[::1]"),
        *("0.0.0.0", "10.0.0.1", "172.16.0.1", "192.168.1.1", "100.64.0.1", "169.254.169.254"),  # noqa: S104
        *("[::]", "[::ffff:127.0.0.1]", "[::ffff:a9fe:a9fe]", "[64:ff9b::a9fe:a9fe]"),
        *("[2002:7f00:1::]", "[fd00:ec2::254]", "[fe80::1]", "224.0.0.1", "255.255.255.255"),
    ],
)
def test_no_connection_goes_inside(
    host: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = False

    def connect(*_: Any) -> None:
        pytest.fail("it connected")

    monkeypatch.setattr(socket, "create_connection", connect)
    reply = told(f"https://{host}/")
    assert (reply.status, reply.refused) == (0, True)


@pytest.mark.parametrize(
    "url", ["ftp://a.example/", "https:///x", "https://a:99999/", "https://a:0/"]
)
def test_no_such_url_is_taken(url: str) -> None:
    with pytest.raises(InvalidUrl):
        check_url(url)


def test_a_name_is_resolved_once_for_each_attempt_and_connected_as_it_was_checked(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = False
    answers = iter(["93.184.216.34", "127.0.0.1"])
    connected: list[Any] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, 1, 6, "", (next(answers), port))]

    def connect(address: Any, *_: Any) -> None:
        connected.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    monkeypatch.setattr(socket, "create_connection", connect)
    assert told("https://rebound.example/").text.startswith("ConnectionRefusedError")
    assert told("https://rebound.example/").refused
    assert connected == [("93.184.216.34", 443)]


def test_a_name_service_that_never_answers_is_left(
    impatient: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: over.wait(20) and [])
    began = time.monotonic()
    reply = told("https://slow.example/")
    over.set()
    assert reply == AttemptResult(text="no address: the name was not resolved in time")
    assert time.monotonic() - began < 10


def test_one_inner_address_among_others_refuses_the_name(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = False
    found = [(2, 1, 6, "", (address, 443)) for address in ("93.184.216.34", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    assert told("https://mixed.example/").refused


@pytest.mark.parametrize(
    ("host", "refused"),
    [("10.1.2.3", False), ("10.2.0.1", True), ("[::ffff:10.1.2.3]", True), ("[fd00::1]", True)],
)
def test_an_admin_may_name_networks_inside(
    host: str, refused: bool, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.SIGNOFF_LOOPBACK_WEBHOOKS = False
    settings.SIGNOFF_INTERNAL_WEBHOOKS = (ip_network("10.1.0.0/16"),)

    def connect(*_: Any) -> None:
        raise ConnectionRefusedError

    monkeypatch.setattr(socket, "create_connection", connect)
    assert told(f"https://{host}/").refused == refused


# TLS


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A file with a key and a certificate for localhost that signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    at = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(at - timedelta(days=1))
        .not_valid_after(at + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, SHA256())
    )
    pem = serialization.Encoding.PEM
    path = tmp_path / "certificate.pem"
    private = serialization.PrivateFormat.PKCS8
    path.write_bytes(
        key.private_bytes(pem, private, serialization.NoEncryption()) + made.public_bytes(pem)
    )
    return path


@pytest.fixture
def secure(certificate: Path) -> Iterator[str]:
    """The URL of a receiver that has this certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with serving(lambda request, _: respond(request, 204), tls=context) as url:
        yield url.replace("http://127.0.0.1", "https://localhost")


def test_a_certificate_must_be_trusted_and_of_that_name(
    secure: str, certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(secure).text.startswith("SSLCertVerificationError")
    trusting = ssl.create_default_context(cafile=str(certificate))
    monkeypatch.setattr(webhook, "load_authorities", lambda: trusting)
    assert told(secure).status == 204
    other = secure.replace("localhost", "127.0.0.1")
    assert told(other).text.startswith("SSLCertVerificationError")


def test_a_receiver_that_never_shakes_hands_is_left(impatient: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"https://127.0.0.1:{server.getsockname()[1]}/"
        assert told(url).text == "no answer in time"


# The outbox


@pytest.mark.django_db(transaction=True)
def test_a_slow_destination_delays_no_other() -> None:
    kind, stop = Kind(), threading.Event()
    sender = Sender({"test": kind})
    for _ in range(3 * THREADS):
        add(destination="slow")
    others = {add(lane="b").number for _ in range(5)}

    def are_sent() -> bool | None:
        sender.send_due(stop)
        return len(kind.sent) == len(others) or None

    try:
        until(are_sent, "the others to be sent")
        assert {message.number for message in kind.sent} == others
        assert len(kind.waiting) == messages.PER_LANE
    finally:
        stop.set()
        kind.go.set()
        sender._pool.shutdown()


@pytest.mark.django_db(transaction=True)
def test_a_message_has_one_sender_at_a_time() -> None:
    for lane in ("a", "b", "c"):
        add(lane=lane)
    claimed: list[OutboxMessage | None] = []
    together([lambda: claimed.append(messages.claim())] * 6)
    numbers = [message.number for message in claimed if message is not None]
    assert len(numbers) == len(set(numbers)) > 0


@pytest.mark.django_db(transaction=True)
def test_an_error_of_ours_leaves_the_message_for_later() -> None:
    class Broken(Kind):
        def send(self, message: OutboxMessage) -> AttemptResult:
            raise RuntimeError

    add()
    add(kind="of a later release")
    for _ in range(2):
        message = messages.claim()
        assert message is not None
        Sender({"test": Broken()}).send_one(message)
    assert messages.claim() is None
    assert not OutboxMessage.objects.filter(ended_at__isnull=False).exists()
    assert not OutboxMessage.objects.filter(leased_until__isnull=False).exists()
