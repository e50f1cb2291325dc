"""The transports, one for each kind of channel."""

from typing import Protocol
from uuid import UUID

from approvals.models import NoticeChannel
from approvals.notices.apprise import AppriseTransport
from approvals.notices.mail import MailTransport
from approvals.notices.notice import Notice
from approvals.notices.push import PushTransport
from approvals.notices.slack_posts import SlackTransport
from approvals.outbox.messages import AttemptResult


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
