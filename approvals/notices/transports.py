"""The transports, one for each kind of channel, and that of mail. A repeated mail has the same Message-ID."""

import smtplib
from email.utils import parseaddr
from typing import Protocol
from uuid import UUID

from django.conf import settings
from django.core.mail import EmailMessage

from approvals.models import NoticeChannel
from approvals.notices.apprise import AppriseTransport
from approvals.notices.notice import Notice
from approvals.notices.push import PushTransport
from approvals.notices.slack_posts import SlackTransport
from approvals.outbox.messages import AttemptResult
from approvals.people.accounts import check_address

AFTER_A_REFUSAL = 3600.0  # seconds


class MailTransport:
    """Mails notices."""

    def check(self, address: str, channel: UUID) -> dict[str, object]:
        """Return the address. Raise InvalidInput."""
        return {"address": check_address(address, "address")}

    def lane(self, channel: NoticeChannel) -> str:
        """Return the lane of the one mail server."""
        return "mail"

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


class NoticeTransport(Protocol):
    """Sends notices on the channels of one kind."""

    def check(self, address: str, channel: UUID) -> dict[str, object]:
        """Return what this channel stores of an address that its person typed. Raise InvalidInput naming `address`."""

    def lane(self, channel: NoticeChannel) -> str:
        """Return the lane of the outbox: the destinations that delay each other if one hangs."""

    def send(
        self, channel: NoticeChannel, notice: Notice, message_id: UUID
    ) -> AttemptResult | None:
        """Make one attempt of at most ten seconds. A repeated one has the same id. None if the address is gone."""


TRANSPORTS: dict[str, NoticeTransport] = {
    NoticeChannel.Kind.MAIL: MailTransport(),
    NoticeChannel.Kind.APPRISE: AppriseTransport(),
    NoticeChannel.Kind.PUSH: PushTransport(),
    NoticeChannel.Kind.SLACK: SlackTransport(),
}
