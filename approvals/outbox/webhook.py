"""Posts signed messages to addresses that outsiders give: Standard Webhooks (https://www.standardwebhooks.com).

Each attempt resolves the name anew, connects to a checked address of the public internet, follows no redirect, takes
ten seconds at most and reads the beginning of the answer.
"""

import http.client
import re
import socket
import ssl
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from ipaddress import ip_address
from threading import Timer
from urllib.parse import urlsplit

from django.conf import settings

from approvals import clock
from approvals.outbox.messages import AttemptResult
from runtime.errors import InvalidInput
from runtime.network import (
    AddressRefused,
    is_public,
    load_authorities,
    resolve_addresses,
    retry_after_seconds,
)
from runtime.triggers import signatures

LIMIT_SECONDS = 10.0
MAX_BODY = 4096  # bytes of an answer
MAX_URL = 2000
BUSY = (429, 503)  # the destination may say when to come again
_VISIBLE = re.compile(r"[\x21-\x5b\x5d-\x7e]+")  # without a backslash, which some read as a slash
_PORTS = {"https": 443, "http": 80}


class InvalidUrl(InvalidInput):
    """Messages are not sent to the URL in this field."""


def check_url(url: str, field: str = "url", *, internal: bool = False) -> None:
    """Raise InvalidUrl unless messages may be sent to this URL. Its name is resolved at each connection.

    With `internal` it may be in a network that the operator named.
    """
    if len(url) > MAX_URL or not _VISIBLE.fullmatch(url):
        raise InvalidUrl(field, f"must be at most {MAX_URL} visible ASCII characters")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as exc:
        raise InvalidUrl(field, "is not a URL") from exc
    schemes = ("https", "http") if settings.SIGNOFF_LOOPBACK_WEBHOOKS else ("https",)
    if parts.scheme not in schemes or not parts.hostname or port == 0:
        raise InvalidUrl(field, "must begin with https:// and a host")
    if "@" in parts.netloc or "#" in url:
        raise InvalidUrl(field, "must have no user and no fragment")
    with suppress(ValueError):  # of a name
        if not _is_allowed(str(ip_address(parts.hostname)), internal):
            raise InvalidUrl(field, "must be at a public address")


def post(url: str, *, secrets: Sequence[str], message_id: str, body: str) -> AttemptResult:
    """Post a message of an admin's webhook once, signed now with each of these secrets. Every failure is a result."""
    at = int(clock.read_time().timestamp())
    content = body.encode()
    signed = [signatures.sign(secret, message_id, at, content) for secret in secrets]
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(signed),
    }
    return send_request(url, headers, content, internal=True)


def send_request(
    url: str,
    headers: dict[str, str],
    content: bytes,
    *,
    seconds: float | None = None,
    max_bytes: int = MAX_BODY,
    internal: bool = False,
) -> AttemptResult:
    """Post these bytes once, in so many seconds or ten, to an address as in `check_url`. Every failure is a result.

    At most so many bytes of the answer are read.
    """
    until = time.monotonic() + (seconds or LIMIT_SECONDS)
    try:
        check_url(url, internal=internal)
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        is_allowed = partial(_is_allowed, internal=internal)
        addresses = resolve_addresses(host, port, is_allowed, seconds=until - time.monotonic())
    except (InvalidUrl, AddressRefused) as exc:
        return AttemptResult(refused=True, text=f"refused: {exc}")
    except (OSError, UnicodeError) as exc:
        return AttemptResult(text=f"no address: {exc}")
    headers = {"Host": parts.netloc, "User-Agent": "Signoff", **headers}
    connection = http.client.HTTPConnection(host, port)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    try:
        with _connect(addresses, port, until) as plain:
            connection.sock = plain
            if parts.scheme == "https":
                connection.sock = load_authorities().wrap_socket(
                    plain, server_hostname=host, do_handshake_on_connect=False
                )
            with connection.sock as sock, _end_socket_at(until, sock):
                if isinstance(sock, ssl.SSLSocket):
                    sock.do_handshake()
                connection.request("POST", path, content, headers)
                with connection.getresponse() as response:
                    retry_after = response.headers.get("Retry-After")
                    return AttemptResult(
                        is_taken=200 <= response.status < 300,
                        text=str(response.status),
                        after=retry_after_seconds(retry_after) if response.status in BUSY else None,
                        status=response.status,
                        body=response.read(max_bytes),
                    )
    except (OSError, http.client.HTTPException, ValueError) as exc:
        if isinstance(exc, TimeoutError) or time.monotonic() >= until:
            return AttemptResult(text="no answer in time")
        return AttemptResult(text=f"{type(exc).__name__}: {exc}")


def _connect(addresses: list[str], port: int, until: float) -> socket.socket:
    """Connect to the first address that answers. Raise OSError."""
    for address in addresses:
        try:
            return socket.create_connection((address, port), _compute_remaining(until))
        except OSError as exc:
            problem = exc
    raise problem


@contextmanager
def _end_socket_at(until: float, sock: socket.socket) -> Iterator[None]:
    """Shut the socket down at this time, which ends every wait for it."""

    def shut_down() -> None:
        with suppress(OSError):
            socket.socket.shutdown(sock, socket.SHUT_RDWR)

    alarm = Timer(_compute_remaining(until), shut_down)
    alarm.start()
    try:
        yield
    finally:
        alarm.cancel()


def _compute_remaining(until: float) -> float:
    return max(until - time.monotonic(), 0.001)


def _is_allowed(address: str, internal: bool) -> bool:
    ip = ip_address(address.partition("%")[0])
    if settings.SIGNOFF_LOOPBACK_WEBHOOKS and ip.is_loopback:
        return True
    if internal and any(ip in network for network in settings.SIGNOFF_INTERNAL_WEBHOOKS):
        return True
    return is_public(address)
