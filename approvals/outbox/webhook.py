"""Posts signed messages to addresses that outsiders give: Standard Webhooks (https://www.standardwebhooks.com).

Each attempt resolves the name anew, connects to a checked address of the public internet, follows no redirect, takes
ten seconds at most and reads the beginning of the answer.
"""

import contextlib
import http.client
import re
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from threading import Timer
from urllib.parse import SplitResult, urlsplit

from django.conf import settings

from approvals import clock
from approvals.outbox.messages import AttemptResult
from runtime.errors import InvalidInput
from runtime.network import (
    AddressRefused,
    addresses_of,
    authorities,
    is_public,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The answer to one POST. Without one `status` is 0, and `problem` says why; `refused` if nothing was sent."""

    status: int = 0
    refused: bool = False
    body: bytes = b""
    problem: str = ""
    after: float | None = None

    @property
    def answer(self) -> AttemptResult:
        """The answer as the outbox records it."""
        return AttemptResult(
            is_taken=200 <= self.status < 300,
            text=self.problem or str(self.status),
            after=self.after,
            body=self.body,
        )


def check_url(url: str, field: str = "url") -> None:
    """Raise InvalidUrl unless messages may be sent to this URL. Its name is resolved at each connection."""
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
    with contextlib.suppress(ValueError):  # of a name
        if not _is_allowed(str(ip_address(parts.hostname))):
            raise InvalidUrl(field, "must be at a public address")


def post(url: str, *, secret: str | Sequence[str], message_id: str, body: str) -> Reply:
    """Post a message once, signed now with the secret or with each of several. Every failure is a Reply."""
    at = int(clock.now().timestamp())
    content, keys = body.encode(), [secret] if isinstance(secret, str) else secret
    headers = {
        "Content-Type": "application/json",
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": " ".join(
            signatures.sign(key, message_id, at, content) for key in keys
        ),
    }
    return send_request(url, headers, content)


def send_request(
    url: str,
    headers: dict[str, str],
    content: bytes,
    *,
    seconds: float | None = None,
    max_bytes: int = MAX_BODY,
) -> Reply:
    """Post these bytes once, in so many seconds or ten, to a checked address. Every failure is a Reply.

    At most so many bytes of the answer are read.
    """
    until = time.monotonic() + (seconds or LIMIT_SECONDS)
    try:
        check_url(url)
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port or _PORTS[parts.scheme]
        addresses = addresses_of(host, port, _is_allowed, seconds=until - time.monotonic())
    except (InvalidUrl, AddressRefused) as exc:
        return Reply(refused=True, problem=f"refused: {exc}")
    except (OSError, UnicodeError) as exc:
        return Reply(problem=f"no address: {exc}")
    headers = {"Host": parts.netloc, "User-Agent": "Signoff", **headers}
    connection = _Connection(parts, host, port, addresses, until)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return _exchange(connection, path, content, headers, max_bytes)


def _exchange(
    connection: "_Connection", path: str, body: bytes, headers: dict[str, str], max_bytes: int
) -> Reply:
    alarm = Timer(connection.seconds, connection.abort)
    alarm.start()
    try:
        connection.request("POST", path, body, headers)
        response = connection.getresponse()
        retry_after = response.headers.get("Retry-After") if response.status in BUSY else None
        return Reply(
            status=response.status,
            body=response.read(max_bytes),
            after=retry_after_seconds(retry_after),
        )
    except (OSError, http.client.HTTPException, ValueError) as exc:
        if connection.aborted or isinstance(exc, TimeoutError):
            return Reply(problem="no answer in time")
        return Reply(problem=f"{type(exc).__name__}: {exc}")
    finally:
        alarm.cancel()
        connection.close()


class _Connection(http.client.HTTPConnection):
    """Connects to the addresses that were checked; a certificate is for the name. `abort` ends every wait."""

    def __init__(
        self, parts: SplitResult, host: str, port: int, addresses: list[str], until: float
    ) -> None:
        self.seconds = max(until - time.monotonic(), 0.001)
        super().__init__(host, port, timeout=self.seconds)
        self._is_secure = parts.scheme == "https"
        self._addresses = addresses
        self._until = until
        self.aborted = False

    def connect(self) -> None:
        """Connect to the first address that answers. Raise OSError."""
        for address in self._addresses:
            remaining = max(self._until - time.monotonic(), 0.001)
            try:
                self.sock = socket.create_connection((address, self.port), remaining)
                break
            except OSError as exc:
                problem = exc
        else:
            raise problem
        self.sock.settimeout(self.seconds)
        if self._is_secure:
            self.sock = authorities().wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
        if self.aborted:
            raise TimeoutError
        if isinstance(self.sock, ssl.SSLSocket):
            self.sock.do_handshake()

    def abort(self) -> None:
        """Shut the connection down, from another thread."""
        self.aborted = True
        if self.sock is not None:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


def _is_allowed(address: str) -> bool:
    ip = ip_address(address.partition("%")[0])
    if settings.SIGNOFF_LOOPBACK_WEBHOOKS and ip.is_loopback:
        return True
    if any(ip in network for network in settings.SIGNOFF_INTERNAL_WEBHOOKS):
        return True
    return is_public(address)
