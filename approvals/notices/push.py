"""Sends notices to browsers by Web Push (RFC 8030), encrypted for one browser (RFC 8291) and signed by us (RFC 8292).

The push service sees neither text nor address of a page. The key that signs is derived from a key of the purpose
`secrets`, whose id is in the address of the channel: a browser accepts messages of the key that it subscribed with.
"""

import base64
import json
import os
import time
from email.utils import parseaddr
from urllib.parse import urlsplit
from uuid import UUID

import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF, HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings

from approvals.models import NoticeChannel
from approvals.notices.notice import Notice, NoticeTransport
from approvals.outbox import webhook
from approvals.outbox.messages import AttemptResult
from approvals.outbox.webhook import InvalidUrl
from runtime.errors import InvalidInput, KeyMissing
from runtime.keyring import files, purposes, sealing

CURVE = ec.SECP256R1()
POINT_BYTES = 65
AUTH_BYTES = 16
SALT_BYTES = 16
RECORD_BYTES = 4096  # a message is one record (RFC 8188)
MAX_TEXT = 1500  # bytes; a service takes 4096 of the whole message
TTL_SECONDS = 86400  # the service keeps a message so long for a browser that is off
TOKEN_SECONDS = 43200
GONE = (404, 410)  # the browser unsubscribed
_LABEL = b"signoff.push.v1"
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the curve P-256


class PushTransport(NoticeTransport):
    """Sends notices to subscriptions of browsers."""

    def check(self, address: str, channel: UUID) -> dict[str, object]:
        """Return the subscription of a browser, sealed. Raise InvalidInput."""
        try:
            subscription = json.loads(address)
            endpoint, keys = subscription["endpoint"], subscription["keys"]
            webhook.check_url(endpoint)
            point, secret = _bytes(keys["p256dh"]), _bytes(keys["auth"])
            ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point)
        except InvalidUrl as exc:
            raise InvalidInput("address", str(exc)) from exc
        except (ValueError, KeyError, TypeError, RecursionError) as exc:
            raise InvalidInput("address", "is not a subscription of a browser") from exc
        if len(point) != POINT_BYTES or len(secret) != AUTH_BYTES:
            raise InvalidInput("address", "is not a subscription of a browser")
        value = {"endpoint": endpoint, "point": keys["p256dh"], "secret": keys["auth"]}
        return {
            "address": urlsplit(endpoint).hostname,
            "key": files.current_key(purposes.SECRETS)[0],
            "subscription": sealing.seal(value, _location(channel)),
        }

    def lane(self, channel: NoticeChannel) -> str:
        """Return the lane of the push service."""
        return f"push {channel.address['address']}"

    def send(
        self, channel: NoticeChannel, notice: Notice, message_id: UUID
    ) -> AttemptResult | None:
        """Post the notice, encrypted. Return None if the browser has unsubscribed."""
        try:
            subscription = sealing.unseal(channel.address["subscription"], _location(channel.pk))
            signature = _authorize(subscription["endpoint"], channel.address["key"])
        except KeyMissing as exc:
            return AttemptResult(is_taken=False, text=str(exc))
        entries = notice.entries
        link = entries[0].link if len(entries) == 1 else f"{settings.PUBLIC_URL}/inbox/"
        lines = [line for entry in entries for line in entry.lines] or list(notice.foot)
        text = "\n".join(lines).encode()[:MAX_TEXT].decode(errors="ignore")
        path = urlsplit(link).path
        document = {"title": notice.title, "text": text, "path": path, "tag": message_id.hex}
        content = encrypt(
            json.dumps(document, ensure_ascii=False).encode(),
            point=_bytes(subscription["point"]),
            secret=_bytes(subscription["secret"]),
            key=ec.generate_private_key(CURVE),
            salt=os.urandom(SALT_BYTES),
        )
        headers = {
            "Authorization": signature,
            "Content-Encoding": "aes128gcm",
            "Content-Type": "application/octet-stream",
            "TTL": str(TTL_SECONDS),
            "Topic": message_id.hex,  # a repeated message replaces the first one
            "Urgency": "high",
        }
        reply = webhook.send_request(subscription["endpoint"], headers, content)
        return None if reply.status in GONE else reply.answer


def encrypt(
    text: bytes, *, point: bytes, secret: bytes, key: ec.EllipticCurvePrivateKey, salt: bytes
) -> bytes:
    """Encrypt one message for the browser with this point and secret, with a key and a salt that are used once."""
    shared = key.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point))
    sender = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    input_key = _derive(shared, secret, b"WebPush: info\0" + point + sender, 32)
    content_key = _derive(input_key, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(input_key, salt, b"Content-Encoding: nonce\0", 12)
    head = salt + RECORD_BYTES.to_bytes(4) + bytes([len(sender)]) + sender
    return head + AESGCM(content_key).encrypt(nonce, text + b"\2", b"")  # 2 ends the last record


def public_key() -> str:
    """Return the key that browsers subscribe with, as they want it."""
    return _public_text(_signing_key(files.current_key(purposes.SECRETS)[0]))


def _authorize(endpoint: str, key_id: str) -> str:
    """Sign a token for the push service, which names this installation and no person. Raise KeyMissing."""
    key, parts = _signing_key(key_id), urlsplit(endpoint)
    is_public = settings.PUBLIC_URL.startswith("https:")
    sender = parseaddr(settings.DEFAULT_FROM_EMAIL)[1]
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int(time.time()) + TOKEN_SECONDS,
        "sub": settings.PUBLIC_URL if is_public else f"mailto:{sender}",
    }
    return f"vapid t={jwt.encode(claims, key, algorithm='ES256')}, k={_public_text(key)}"


def _signing_key(key_id: str) -> ec.EllipticCurvePrivateKey:
    """Derive a key. 48 bytes make each number of the curve about as likely (FIPS 186-5, A.2.1)."""
    secret = files.key_of(purposes.SECRETS, key_id)
    derived = HKDFExpand(algorithm=SHA256(), length=48, info=_LABEL).derive(secret)
    return ec.derive_private_key(int.from_bytes(derived) % (_ORDER - 1) + 1, CURVE)


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(algorithm=SHA256(), length=length, salt=salt, info=info).derive(secret)


def _public_text(key: ec.EllipticCurvePrivateKey) -> str:
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64.urlsafe_b64encode(point).rstrip(b"=").decode()


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def _location(channel: UUID) -> bytes:
    return sealing.encode_location("push", str(channel))
