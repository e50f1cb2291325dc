"""Verifies deliveries of webhooks: Standard Webhooks, and the signatures of GitHub, Stripe and Slack. Pure.

It is our own and not the library `standardwebhooks`: that raises ValueError for a header of another shape, has the
clock of this machine, and knows one of the four. Each is an HMAC over the bytes of the body, or over them and a time.
"""

import base64
import binascii
import hashlib
import hmac
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import StrEnum

WINDOW = 300  # seconds between the time of a signature and now
MIN_SECRET = 16  # characters
MAX_SECRET = 200
MAX_SIGNATURES = 10  # in one header
PREFIX = "whsec_"  # of a secret of Standard Webhooks; base64 follows


class Scheme(StrEnum):
    """How the sender proves that it knows the secret."""

    STANDARD = (
        "standard"  # Standard Webhooks: headers webhook-id, webhook-timestamp, webhook-signature
    )
    GITHUB = "github"  # X-Hub-Signature-256
    STRIPE = "stripe"  # Stripe-Signature
    SLACK = "slack"  # X-Slack-Signature, X-Slack-Request-Timestamp
    HEADER = "header"  # the secret itself, in a header of any name


class Refused(Exception):
    """A delivery that does not verify; the message says why."""


def key_of(scheme: Scheme, secret: str) -> bytes:
    """Return the key of a secret. Raise ValueError if it is none."""
    if scheme is Scheme.STANDARD:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()


def verify(
    scheme: Scheme,
    secret: str,
    header: str,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
) -> None:
    """Raise Refused unless the sender of these headers and this body knows the secret, at this time.

    `header` is the name of the header that holds the secret itself, for that scheme.
    """
    if scheme is Scheme.HEADER:
        _match([headers.get(header, "")], secret)
        return
    signed, given, digest = _parts(scheme, headers, now)
    mac = hmac.digest(key_of(scheme, secret), signed + body, hashlib.sha256)
    _match(given, base64.b64encode(mac).decode() if digest == "base64" else mac.hex())


def _parts(
    scheme: Scheme, headers: Mapping[str, str], now: datetime
) -> tuple[bytes, list[str], str]:
    """Return the signed bytes before the body, the signatures that were sent, and how these are written."""
    match scheme:
        case Scheme.GITHUB:
            return b"", list(_named(headers.get("x-hub-signature-256", ""), "sha256=")), "hex"
        case Scheme.STRIPE:
            sent = headers.get("stripe-signature", "")
            at = _fresh(next(_named(sent, "t="), ""), now)
            return f"{at}.".encode(), list(_named(sent, "v1=")), "hex"
        case Scheme.SLACK:
            at = _fresh(headers.get("x-slack-request-timestamp", ""), now)
            sent = headers.get("x-slack-signature", "")
            return f"v0:{at}:".encode(), list(_named(sent, "v0=")), "hex"
        case _:
            at = _fresh(headers.get("webhook-timestamp", ""), now)
            sent = headers.get("webhook-signature", "").replace(",", "=").replace(" ", ",")
            signed = f"{headers.get('webhook-id', '')}.{at}."
            return _bytes(signed), list(_named(sent, "v1=")), "base64"


def _named(header: str, name: str) -> Iterator[str]:
    """Return the values of this name in a list with commas, the first ones."""
    for part in header.split(",")[: MAX_SIGNATURES + 1]:
        if part.strip().startswith(name):
            yield part.strip().removeprefix(name)


def _fresh(text: str, now: datetime) -> str:
    """Return the time of a signature as it was sent. Raise Refused outside the window."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise Refused("it has no time")
    if abs(now.timestamp() - int(text)) > WINDOW:
        raise Refused(f"its time is more than {WINDOW} s away from now")
    return text


def _match(given: list[str], expected: str) -> None:
    """Raise Refused unless one of the texts is the expected one, in a time that tells nothing about it."""
    if not any(hmac.compare_digest(_bytes(one), _bytes(expected)) for one in given):
        raise Refused("its signature does not verify" if any(given) else "it has no signature")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def is_key(scheme: Scheme, secret: str) -> bool:
    """Tell whether a secret that a person gives can be one."""
    try:
        found = key_of(scheme, secret)
    except (ValueError, binascii.Error):
        return False
    return len(found) >= MIN_SECRET and len(secret) <= MAX_SECRET and secret.isprintable()
