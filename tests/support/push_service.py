"""A push service on this machine with one browser. Only the browser can read the messages."""

import base64
import hmac
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from approvals.notices import transports
from tests.support.loopback import respond, serving


def encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def decode(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def decrypt(body: bytes, key: ec.EllipticCurvePrivateKey, secret: bytes) -> bytes:
    """Read a message as a browser does: RFC 8291, with one record of RFC 8188."""
    salt, length, rest = body[:16], body[20], body[21:]
    sender, sealed = rest[:length], rest[length:]
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    pseudo_random = hmac.digest(
        secret,
        key.exchange(
            ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender)
        ),
        "sha256",
    )
    input_key = hmac.digest(pseudo_random, b"WebPush: info\0" + point + sender + b"\1", "sha256")
    salted = hmac.digest(salt, input_key, "sha256")
    content_key = hmac.digest(salted, b"Content-Encoding: aes128gcm\0\1", "sha256")[:16]
    nonce = hmac.digest(salted, b"Content-Encoding: nonce\0\1", "sha256")[:12]
    return AESGCM(content_key).decrypt(nonce, sealed, b"").removesuffix(b"\2")


@dataclass
class PushService:
    """A push service with one browser. It checks who sends, and keeps what the browser would read."""

    answers: list[int] = field(default_factory=list)
    messages: list[dict[str, str]] = field(default_factory=list)
    topics: list[str] = field(default_factory=list)
    url: str = ""
    key: ec.EllipticCurvePrivateKey = field(
        default_factory=lambda: ec.generate_private_key(ec.SECP256R1())
    )
    secret: bytes = field(default_factory=lambda: os.urandom(16))
    trusts: str = ""  # the key that the browser subscribed with

    @property
    def subscription(self) -> dict[str, Any]:
        point = self.key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        keys = {"p256dh": encode(point), "auth": encode(self.secret)}
        return {"endpoint": f"{self.url}/browser", "expirationTime": None, "keys": keys}

    def take(self, request: BaseHTTPRequestHandler, body: bytes) -> int:
        scheme, _, rest = request.headers["Authorization"].partition(" ")
        fields = dict(part.strip().split("=", 1) for part in rest.split(","))
        assert (scheme, fields["k"]) == ("vapid", self.trusts)
        signer = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(fields["k"]))
        jwt.decode(
            fields["t"],
            signer,
            algorithms=["ES256"],
            audience=self.url,
            options={"require": ["exp", "sub"]},
        )
        assert request.headers["TTL"].isdigit()
        assert request.headers["Content-Encoding"] == "aes128gcm"
        if self.answers:
            return self.answers.pop(0)
        assert len(body) <= 4096
        self.messages.append(json.loads(decrypt(body, self.key, self.secret)))
        self.topics.append(request.headers["Topic"])
        return 201


@contextmanager
def serving_push() -> Iterator[PushService]:
    """Serve, for a browser that subscribed with the current key."""
    service = PushService(trusts=transports.push_key())

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        respond(request, service.take(request, body))

    with serving(answer) as service.url:
        yield service
