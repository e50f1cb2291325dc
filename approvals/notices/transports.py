"""The transports of notices, one for each kind of channel: mail, Apprise, Web Push and Slack.

Teams and other services get notices by Apprise (https://github.com/caronc/apprise), which posts with the package
`requests`. That resolves a name by itself, so in the plugins named here a sender of ours stands in its place: it
connects to checked addresses, verifies certificates, follows no redirect and takes ten seconds at most. No other plugin
is used: some of them start programs, or open files and sockets of this machine.

Browsers get them by Web Push (RFC 8030), encrypted for one browser (RFC 8291) by Apprise and signed by us (RFC 8292).
The package `pywebpush` would bring ten more, and post with `requests`. The push service sees neither text nor address
of a page. The key that signs is derived from a key of the purpose `secrets`. Its id is in the address of the channel: a
browser accepts messages of the key that it subscribed with.
"""

import base64
import importlib
import io
import json
import logging
import smtplib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import timedelta
from email.utils import parseaddr
from functools import cache, partial
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import jwt
import requests
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import settings
from django.core.mail import EmailMessage

from approvals import clock
from approvals.models import NoticeChannel
from approvals.notices import slack_posts
from approvals.notices.notice import Notice
from approvals.outbox import webhook
from approvals.outbox.messages import AttemptResult
from approvals.people.accounts import check_address
from runtime.errors import InvalidInput, KeyMissing
from runtime.keyring import files, purposes, sealing

AFTER_A_REFUSAL = 3600.0  # seconds
PLUGINS = {
    "workflows": "NotifyWorkflows",  # Microsoft Teams
    "discord": "NotifyDiscord",
    "google_chat": "NotifyGoogleChat",
    "mattermost": "NotifyMattermost",
    "rocketchat": "NotifyRocketChat",
    "zulip": "NotifyZulip",
    "webexteams": "NotifyWebexTeams",
    "gotify": "NotifyGotify",
    "custom_json": "NotifyJSON",  # any receiver
}
MAX_POSTS = 3  # for one notice: some services want a login first
_READS_FILES = {"template", "attach"}
_replies: ContextVar[list[AttemptResult]] = ContextVar("replies")

CURVE = ec.SECP256R1()
AUTH_BYTES = 16
MAX_TEXT = 1500  # bytes; a service takes 4096 of the whole message
TTL_SECONDS = 86400  # the service keeps a message so long for a browser that is off
TOKEN_LASTS = timedelta(hours=12)
GONE = (404, 410)  # the browser unsubscribed
_LABEL = b"signoff.push.v1"
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551  # of the curve P-256


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeTransport:
    """Sends notices on the channels of one kind. People choose it by its `label`; without one it is added for them.

    `check` returns the stored form of an address that the channel's person typed, or raises InvalidInput naming
    `address`. `send` makes one attempt of at most ten seconds; a repeated one has the same id. It returns None if the
    address is gone. The destinations in one `lane` of the outbox delay each other if one hangs: one lane for a kind, so
    that the hosts which people name take few of the threads.
    """

    label: str = ""
    check: Callable[[str, UUID], dict[str, object]]
    send: Callable[[NoticeChannel, Notice, UUID], AttemptResult | None]
    lane: str


def send_mail(channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult:
    """Hand the mail to the server, a repeated one with the same Message-ID. A refused address waits for an hour."""
    domain = parseaddr(settings.DEFAULT_FROM_EMAIL)[1].rpartition("@")[2] or "localhost"
    mail = EmailMessage(
        subject=notice.title,
        body=notice.text,
        to=[channel.address["address"]],
        headers={
            "Message-ID": f"<{message_id.hex}@{domain}>",
            "Auto-Submitted": "auto-generated",
        },
    )
    try:
        mail.send()
    except (smtplib.SMTPRecipientsRefused, smtplib.SMTPDataError, UnicodeError) as exc:
        return AttemptResult(text=str(exc), after=AFTER_A_REFUSAL)
    except (OSError, smtplib.SMTPException) as exc:
        return AttemptResult(text=f"{type(exc).__name__}: {exc}")
    return AttemptResult(is_taken=True, text="taken")


def _request(method: str, url: str, **options: Any) -> requests.Response:
    """Post once, to a checked address. Raise RequestException for other methods and without an answer."""
    # Apprise's own timeouts, redirects and "verify=no" do not count: ours are fixed.
    fields = {key: options.get(key) for key in ("params", "data", "json", "headers", "auth")}
    sent = requests.Request(method, url, **fields).prepare()
    replies = _replies.get()
    if method != "POST" or sent.url is None or len(replies) >= MAX_POSTS:
        raise requests.RequestException("only a few POSTs are sent")
    body = sent.body.encode() if isinstance(sent.body, str) else bytes(sent.body or b"")  # type: ignore[arg-type]
    headers = {name: str(value) for name, value in sent.headers.items()}
    reply = webhook.send_request(sent.url, headers, body)
    replies.append(reply)
    if not reply.status:
        raise requests.RequestException(reply.text)
    response = requests.Response()
    response.status_code, response.raw = reply.status, io.BytesIO(reply.body)
    return response


# What the plugins use of the package `requests`.
CHECKED_REQUESTS = SimpleNamespace(
    codes=requests.codes,
    RequestException=requests.RequestException,
    request=_request,
    get=partial(_request, "GET"),
    post=partial(_request, "POST"),
)


def check_apprise(address: str, channel: UUID) -> dict[str, object]:
    """Return the sealed URL, and its service and host to show."""
    masked = urlsplit(_open(address).url(privacy=True))
    host = masked.netloc.rpartition("@")[2]
    sealed = sealing.seal(address, sealing.encode_location("channel", str(channel)))
    return {"address": f"{masked.scheme}://{host}", "url": sealed}


def send_apprise(channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult:
    """Send it as plain text to the service that the URL names."""
    location = sealing.encode_location("channel", str(channel.pk))
    plugin = _open(str(sealing.unseal(channel.address["url"], location)))
    replies = list[AttemptResult]()
    token = _replies.set(replies)
    try:
        is_taken = plugin.notify(title=notice.title, body=notice.text)
    finally:
        _replies.reset(token)
    reply = replies[-1] if replies else AttemptResult(text="the service cannot be used")
    # Its body may be that of a login there.
    return replace(reply, is_taken=bool(is_taken), body=b"")


def _open(url: str) -> Any:
    """Return the plugin of a URL. Raise InvalidInput naming `address`."""
    scheme = url.partition(":")[0].lower()
    asset, kinds = _load()
    for kind, schemes in kinds:
        try:
            fields = kind.parse_native_url(url) if scheme == "https" else None
            if scheme in schemes:
                fields = kind.parse_url(url)
            if not fields:
                continue
            # A template is a file of this machine or an address, which Apprise would read by itself.
            if _READS_FILES & (fields.keys() | fields.get("qsd", {}).keys()):
                raise InvalidInput("address", "must have no template and no attachment")
            return kind(**{**fields, "asset": asset, "overflow": "truncate"})
        except (TypeError, ValueError) as exc:  # of the plugin: a part is missing or wrong
            raise InvalidInput("address", "is not a complete Apprise URL") from exc
    names = ", ".join(f"{schemes[-1]}://" for _, schemes in kinds)
    raise InvalidInput("address", f"must be the URL of a Teams workflow, or begin with {names}")


@cache
def _load() -> tuple[Any, list[tuple[Any, list[str]]]]:
    """Import the plugins, each with its schemes, when the first notice needs them: they take a second."""
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its lines have addresses with secrets
    apprise = importlib.import_module("apprise")
    # Set once for the process, before the first use: a plugin finds `requests` in its module each time.
    kinds = []
    for name, kind_name in PLUGINS.items():
        plugin = importlib.import_module(f"apprise.plugins.{name}")
        plugin.requests = CHECKED_REQUESTS  # type: ignore[attr-defined]
        kind = getattr(plugin, kind_name)
        kinds.append((kind, apprise.utils.parse.parse_list(kind.protocol, kind.secure_protocol)))
    return apprise.AppriseAsset(storage_mode="memory", async_mode=False), kinds


def check_push(address: str, channel: UUID) -> dict[str, object]:
    """Return the subscription of a browser, sealed."""
    try:
        subscription = json.loads(address)
        endpoint, keys = subscription["endpoint"], subscription["keys"]
        webhook.check_url(endpoint, "address")
        value = {"endpoint": endpoint, "point": keys["p256dh"], "secret": keys["auth"]}
        _decode_keys(value)
    except (ValueError, KeyError, TypeError, RecursionError) as exc:
        raise InvalidInput("address", "is not a subscription of a browser") from exc
    return {
        "address": urlsplit(endpoint).hostname,
        "key": files.read_current_key(purposes.SECRETS)[0],
        "subscription": sealing.seal(value, sealing.encode_location("push", str(channel))),
    }


def send_push(channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult | None:
    """Post the notice, encrypted. Return None if the browser has unsubscribed."""
    location = sealing.encode_location("push", str(channel.pk))
    try:
        subscription = sealing.unseal(channel.address["subscription"], location)
        signature = _authorize(subscription["endpoint"], channel.address["key"])
    except KeyMissing as exc:
        return AttemptResult(text=str(exc))
    entries = notice.entries
    link = entries[0].link if len(entries) == 1 else f"{settings.PUBLIC_URL}/inbox/"
    lines = [line for entry in entries for line in entry.lines] or list(notice.foot)
    text = "\n".join(lines).encode()[:MAX_TEXT].decode(errors="ignore")
    path = urlsplit(link).path
    document = {"title": notice.title, "text": text, "path": path, "tag": message_id.hex}
    pem = importlib.import_module("apprise.utils.pem").ApprisePEMController(path="")
    content = pem.encrypt_webpush(
        json.dumps(document, ensure_ascii=False), *_decode_keys(subscription)
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
    return None if reply.status in GONE else reply


def push_key() -> str:
    """Return the key that browsers subscribe with, as they want it."""
    return _encode_public_key(_derive_signing_key(files.read_current_key(purposes.SECRETS)[0]))


def _authorize(endpoint: str, key_id: str) -> str:
    """Sign a token for the push service, which names this installation and no person. Raise KeyMissing."""
    key, parts = _derive_signing_key(key_id), urlsplit(endpoint)
    is_public = settings.PUBLIC_URL.startswith("https:")
    sender = parseaddr(settings.DEFAULT_FROM_EMAIL)[1]
    claims = {
        "aud": f"{parts.scheme}://{parts.netloc}",
        "exp": int((clock.read_time() + TOKEN_LASTS).timestamp()),
        "sub": settings.PUBLIC_URL if is_public else f"mailto:{sender}",
    }
    return f"vapid t={jwt.encode(claims, key, algorithm='ES256')}, k={_encode_public_key(key)}"


def _derive_signing_key(key_id: str) -> ec.EllipticCurvePrivateKey:
    """Derive a key. 48 bytes make each number of the curve about as likely (FIPS 186-5, A.2.1)."""
    secret = files.read_key(purposes.SECRETS, key_id)
    derived = HKDFExpand(algorithm=SHA256(), length=48, info=_LABEL).derive(secret)
    return ec.derive_private_key(int.from_bytes(derived) % (_ORDER - 1) + 1, CURVE)


def _encode_public_key(key: ec.EllipticCurvePrivateKey) -> str:
    point = key.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
    return base64.urlsafe_b64encode(point).rstrip(b"=").decode()


def _decode_keys(subscription: Mapping[str, str]) -> tuple[ec.EllipticCurvePublicKey, bytes]:
    """Return the public key and the secret of a browser. Raise ValueError, TypeError if it has none."""
    point, secret = (
        base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
        for text in (subscription["point"], subscription["secret"])
    )
    if len(secret) != AUTH_BYTES:
        raise ValueError("not the secret of a browser")
    return ec.EllipticCurvePublicKey.from_encoded_point(CURVE, point), secret


TRANSPORTS: dict[str, NoticeTransport] = {
    NoticeChannel.Kind.MAIL: NoticeTransport(
        label="mail",
        check=lambda address, channel: {"address": check_address(address, "address")},
        send=send_mail,
        lane="mail",
    ),
    NoticeChannel.Kind.PUSH: NoticeTransport(
        label="this browser, which may be closed (needs JavaScript)",
        check=check_push,
        send=send_push,
        lane="push {address}",  # of the push service
    ),
    NoticeChannel.Kind.APPRISE: NoticeTransport(
        label="Teams or another service, by an Apprise URL",
        check=check_apprise,
        send=send_apprise,
        lane="apprise",
    ),
    NoticeChannel.Kind.SLACK: NoticeTransport(  # of the user that the person has connected
        check=lambda address, channel: {"address": "your Slack user"},
        send=slack_posts.send_notice,
        lane="slack",
    ),
}
