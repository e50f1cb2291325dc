"""Verifies deliveries of webhooks: Standard Webhooks, and the signatures of GitHub, Stripe and Slack. Pure.

Outgoing ones are signed by Standard Webhooks. This is our own and not the library `standardwebhooks`: that raises
ValueError for a header of another shape, has the clock of this machine, and knows one of the four. Each is an HMAC over
the bytes of the body, or over them and a time.
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


class InvalidSignature(Exception):
    """A delivery that does not verify; the message says why."""


def decode_key(scheme: Scheme, secret: str) -> bytes:
    """Return the key of a secret. Raise ValueError if it is none."""
    if scheme is Scheme.STANDARD:
        return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    return secret.encode()


def sign(secret: str, message_id: str, at: int, body: bytes) -> str:
    """Return the `webhook-signature` of Standard Webhooks for one attempt, in seconds since 1970."""
    signed = f"{message_id}.{at}.".encode() + body
    mac = hmac.digest(decode_key(Scheme.STANDARD, secret), signed, hashlib.sha256)
    return f"v1,{base64.b64encode(mac).decode()}"


def verify(
    scheme: Scheme,
    secret: str,
    header: str,
    headers: Mapping[str, str],
    body: bytes,
    now: datetime,
) -> None:
    """Raise InvalidSignature unless the sender of these headers and this body knows the secret, at this time.

    `header` is the name of the header that holds the secret itself, for that scheme.
    """
    if scheme is Scheme.HEADER:
        _match([headers.get(header, "")], secret)
        return
    signed, signatures, encoding = _read_signed_parts(scheme, headers, now)
    mac = hmac.digest(decode_key(scheme, secret), signed + body, hashlib.sha256)
    _match(signatures, base64.b64encode(mac).decode() if encoding == "base64" else mac.hex())


def _read_signed_parts(
    scheme: Scheme, headers: Mapping[str, str], now: datetime
) -> tuple[bytes, list[str], str]:
    """Return the signed bytes before the body, the signatures that were sent, and how these are written."""
    match scheme:
        case Scheme.GITHUB:
            return b"", list(_list_values(headers.get("x-hub-signature-256", ""), "sha256=")), "hex"
        case Scheme.STRIPE:
            sent = headers.get("stripe-signature", "")
            at = _require_fresh_time(next(_list_values(sent, "t="), ""), now)
            return f"{at}.".encode(), list(_list_values(sent, "v1=")), "hex"
        case Scheme.SLACK:
            at = _require_fresh_time(headers.get("x-slack-request-timestamp", ""), now)
            sent = headers.get("x-slack-signature", "")
            return f"v0:{at}:".encode(), list(_list_values(sent, "v0=")), "hex"
        case _:
            at = _require_fresh_time(headers.get("webhook-timestamp", ""), now)
            sent = headers.get("webhook-signature", "").replace(",", "=").replace(" ", ",")
            signed = f"{headers.get('webhook-id', '')}.{at}."
            return _encode_text(signed), list(_list_values(sent, "v1=")), "base64"


def _list_values(header: str, name: str) -> Iterator[str]:
    """Return the values of this name in a list with commas, the first ones."""
    for text in header.split(",")[: MAX_SIGNATURES + 1]:
        if text.strip().startswith(name):
            yield text.strip().removeprefix(name)


def _require_fresh_time(text: str, now: datetime) -> str:
    """Return the time of a signature as it was sent. Raise InvalidSignature outside the window."""
    if not (text.isascii() and text.isdigit() and len(text) < 12):
        raise InvalidSignature("it has no time")
    if abs(now.timestamp() - int(text)) > WINDOW:
        raise InvalidSignature(f"its time is more than {WINDOW} s away from now")
    return text


def _match(signatures: list[str], expected: str) -> None:
    """Compare in constant time. Raise InvalidSignature if none is the expected one."""
    if not any(
        hmac.compare_digest(_encode_text(text), _encode_text(expected)) for text in signatures
    ):
        raise InvalidSignature(
            "its signature does not verify" if any(signatures) else "it has no signature"
        )


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def is_key(scheme: Scheme, secret: str) -> bool:
    """Tell whether a secret that a person gives can be a key."""
    try:
        key = decode_key(scheme, secret)
    except (ValueError, binascii.Error):
        return False
    return len(key) >= MIN_SECRET and len(secret) <= MAX_SECRET and secret.isprintable()
