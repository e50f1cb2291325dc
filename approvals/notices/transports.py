"""The transports, one for each kind of channel, and that of mail. A repeated mail has the same Message-ID.

Teams and other services get notices by Apprise (https://github.com/caronc/apprise).

Apprise posts with the package `requests`, which resolves a name by itself. In the plugins named here a sender of ours
stands in its place: it connects to checked addresses, verifies certificates, follows no redirect and takes ten seconds
at most. No other plugin is used: some of them start programs, or open files and sockets of this machine.
"""

import importlib
import io
import logging
import smtplib
from contextvars import ContextVar
from email.utils import parseaddr
from functools import cache
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import requests
from django.conf import settings
from django.core.mail import EmailMessage

from approvals.models import NoticeChannel
from approvals.notices.notice import Notice, NoticeTransport
from approvals.notices.push import PushTransport
from approvals.notices.slack_posts import SlackTransport
from approvals.outbox import webhook
from approvals.outbox.messages import AttemptResult
from approvals.people.accounts import check_address
from runtime.errors import InvalidInput
from runtime.keyring import sealing

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
_replies: ContextVar[list[webhook.Reply]] = ContextVar("replies")


class CheckedRequests:
    """What the plugins use of the package `requests`."""

    codes = requests.codes
    RequestException = requests.RequestException

    @classmethod
    def post(cls, url: str, **options: Any) -> requests.Response:
        """Post once, to a checked address."""
        return cls.request("POST", url, **options)

    @staticmethod
    def request(method: str, url: str, **options: Any) -> requests.Response:
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
            raise requests.RequestException(reply.problem)
        response = requests.Response()
        response.status_code, response.raw = reply.status, io.BytesIO(reply.body)
        return response


class AppriseTransport(NoticeTransport):
    """Sends notices to the service that an Apprise URL names."""

    def check(self, address: str, channel: UUID) -> dict[str, object]:
        """Return the sealed URL, and its service and host to show. Raise InvalidInput."""
        masked = urlsplit(_open(address).url(privacy=True))
        host = masked.netloc.rpartition("@")[2]
        return {
            "address": f"{masked.scheme}://{host}",
            "url": sealing.seal(address, _location(channel)),
        }

    def send(self, channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult:
        """Send it as plain text."""
        plugin = _open(str(sealing.unseal(channel.address["url"], _location(channel.pk))))
        replies = list[webhook.Reply]()
        token = _replies.set(replies)
        try:
            is_taken = plugin.notify(title=notice.title, body=notice.text)
        finally:
            _replies.reset(token)
        answer = replies[-1].answer if replies else None
        text = answer.text if answer else "the service cannot be used"
        return AttemptResult(
            is_taken=bool(is_taken), text=text, after=answer.after if answer else None
        )


def _open(url: str) -> Any:
    """Return the plugin of a URL. Raise InvalidInput naming `address`."""
    scheme = url.partition(":")[0].lower()
    for kind in _load():
        try:
            fields = kind.parse_native_url(url) if scheme == "https" else None
            if scheme in _schemes(kind):
                fields = kind.parse_url(url)
            if not fields:
                continue
            # A template is a file of this machine or an address, which Apprise would read by itself.
            if _READS_FILES & (fields.keys() | fields.get("qsd", {}).keys()):
                raise InvalidInput("address", "must have no template and no attachment")
            return kind(**{**fields, "asset": _asset(), "overflow": "truncate"})
        except (TypeError, ValueError) as exc:  # of the plugin: a part is missing or wrong
            raise InvalidInput("address", "is not a complete Apprise URL") from exc
    names = ", ".join(f"{_schemes(kind)[-1]}://" for kind in _load())
    raise InvalidInput("address", f"must be the URL of a Teams workflow, or begin with {names}")


def _schemes(kind: Any) -> list[str]:
    names = (kind.protocol, kind.secure_protocol)
    return [text for name in names for text in ([name] if isinstance(name, str) else name or ())]


@cache
def _load() -> tuple[Any, ...]:
    """Import the plugins when the first notice needs them: they take a second."""
    logging.getLogger("apprise").setLevel(logging.CRITICAL)  # its lines have addresses with secrets
    # Set once for the process, before the first use: a plugin finds `requests` in its module each time.
    kinds = []
    for name, kind in PLUGINS.items():
        plugin = importlib.import_module(f"apprise.plugins.{name}")
        plugin.requests = CheckedRequests  # type: ignore[attr-defined]
        kinds.append(getattr(plugin, kind))
    return tuple(kinds)


@cache
def _asset() -> Any:
    apprise = importlib.import_module("apprise")
    return apprise.AppriseAsset(storage_mode="memory", async_mode=False)


def _location(channel: UUID) -> bytes:
    return sealing.encode_location("channel", str(channel))


AFTER_A_REFUSAL = 3600.0  # seconds


class MailTransport(NoticeTransport):
    """Mails notices."""

    def check(self, address: str, channel: UUID) -> dict[str, object]:
        """Return the address. Raise InvalidInput."""
        return {"address": check_address(address, "address")}

    def send(self, channel: NoticeChannel, notice: Notice, message_id: UUID) -> AttemptResult:
        """Hand the mail to the server. A refused address is tried again in an hour."""
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
            return AttemptResult(is_taken=False, text=str(exc), after=AFTER_A_REFUSAL)
        except (OSError, smtplib.SMTPException) as exc:
            return AttemptResult(is_taken=False, text=f"{type(exc).__name__}: {exc}")
        return AttemptResult(is_taken=True, text="taken")


TRANSPORTS: dict[str, NoticeTransport] = {
    NoticeChannel.Kind.MAIL: MailTransport(),
    NoticeChannel.Kind.APPRISE: AppriseTransport(),
    NoticeChannel.Kind.PUSH: PushTransport(),
    NoticeChannel.Kind.SLACK: SlackTransport(),
}
