"""Addresses of the public internet, and waiting times, for requests to servers that an outsider may name.

A name may resolve to another address each time. So the caller connects to the address that was checked.
"""

import ipaddress
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Future
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache, partial
from threading import Thread
from typing import TypeVar

from httpx2 import create_ssl_context

Value = TypeVar("Value")
_NAT64 = 0x64FF9B << 64  # RFC 6052: with an IPv4 address in the last 32 bits
MAX_RETRY_SECONDS = 366 * 24 * 3600.0  # that a server may ask for
# RFC 4291: other forms of IPv6 are local, or carry IPv4.
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")


@cache
def load_authorities() -> ssl.SSLContext:
    """Load the certificate authorities that all clients trust. Done once, because it takes 50 ms."""
    return create_ssl_context()


class AddressRefused(Exception):
    """A name is at an address to which no request may go."""


def call_within(seconds: float, call: Callable[[], Value]) -> Value:
    """Return what a call returns. Raise TimeoutError if it takes longer: it is left behind in its thread."""
    outcome = Future[Value]()

    def run() -> None:
        try:
            outcome.set_result(call())
        except Exception as exc:
            outcome.set_exception(exc)

    Thread(target=run, daemon=True).start()
    return outcome.result(seconds)


def resolve_addresses(
    host: str, port: int | None, is_allowed: Callable[[str], bool], *, seconds: float
) -> list[str]:
    """Resolve a name, now. Raise AddressRefused if one address is not allowed, and OSError without any in time.

    The system's lookup has no limit and cannot be ended.
    """
    look_up = partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    try:
        entries = call_within(seconds, look_up)
    except TimeoutError as exc:
        raise TimeoutError("the name was not resolved in time") from exc
    addresses = [str(entry[4][0]) for entry in entries]
    for address in addresses:
        if not is_allowed(address):
            raise AddressRefused(f"{host} is at {address}, which is not a public address")
    return addresses


def is_public(address: str) -> bool:
    """Say whether an address is one of the public internet: not private, local, shared, multicast or reserved."""
    ip = ipaddress.ip_address(address.partition("%")[0])
    inside = getattr(ip, "ipv4_mapped", None) or getattr(ip, "sixtofour", None)
    if inside is not None:
        return is_public(str(inside))
    if int(ip) >> 32 == _NAT64:
        return is_public(str(ipaddress.ip_address(int(ip) & 0xFFFFFFFF)))
    if ip.version == 6 and ip not in _GLOBAL_UNICAST:
        return False
    return ip.is_global and not ip.is_multicast


def retry_after_seconds(retry_after: str | None) -> float | None:
    """Return the seconds of a Retry-After header (RFC 9110, section 10.2.3), a year at most; None if it has none."""
    if not retry_after:
        return None
    if retry_after.strip().isdecimal():
        return min(float(retry_after), MAX_RETRY_SECONDS)
    try:
        moment = parsedate_to_datetime(retry_after)
    except (ValueError, OverflowError):
        return None
    if moment.tzinfo is None:
        return None
    return min(max(0.0, (moment - datetime.now(UTC)).total_seconds()), MAX_RETRY_SECONDS)
