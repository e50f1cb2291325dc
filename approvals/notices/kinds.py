"""The kinds of the outbox that notices need: one that looks at a new request, and one for each channel.

A trigger adds the first with the request. When its people are to be told, and again some time before the deadline, it
has all channels looked at. Every channel is also looked at now and then, because people may decide a request later:
as deputies, or with a new right.
"""

from datetime import datetime, timedelta
from uuid import UUID, uuid5

from approvals import clock
from approvals.models import Approval, NoticeChannel, OutboxMessage, SentNotice
from approvals.notices import channels, due, notice
from approvals.notices.transports import TRANSPORTS
from approvals.outbox import messages
from approvals.outbox.sender import MessageKind
from runtime.core.values.limits import plain

NOTICE = "notice"  # the kind of the message about a request, also in the trigger
IDLE = timedelta(minutes=10)  # between two looks at a channel
WINDOW = timedelta(days=3)  # of attempts
KEPT = timedelta(days=90)
MAX_PROBLEM = 300


class RequestNotices:
    """Has the channels looked at when people are to be told of a request. It sends nothing."""

    def compose(self, message: OutboxMessage) -> messages.Content | datetime | None:
        """Return when to look again, None once all was told or the request is closed."""
        pending = Approval.Status.PENDING
        approval = Approval.objects.filter(pk=message.destination, status=pending).first()
        if approval is None:
            return None
        at, ripe = clock.now(), due.ripe_at(approval)
        if at < ripe:
            return ripe
        channels.wake_all()
        reminds_at = due.ends_soon_at(approval)
        return reminds_at if reminds_at is not None and at < reminds_at else None

    def send(self, message: OutboxMessage) -> messages.AttemptResult | None:
        """Return None: it has no body."""
        return None


class ChannelNotices:
    """Composes the notice that is due on a channel, and sends it by the transport of its kind."""

    def compose(self, message: OutboxMessage) -> messages.Content | datetime | None:
        """Return the next notice, with the message that follows it; when to look again; None without the channel."""
        channel = _channel(message)
        if channel is None:
            return None
        at = clock.now()
        draft = due.find_due(channel, at) if channel.person.is_active else None
        if draft is None:
            return at + IDLE
        # A sender that dies before the body is stored leaves nothing of this: the outbox composes in a transaction.
        follower = uuid5(message.id, "next")  # composed again, it is the same
        messages.add([channels.next_message(channel, follower, at)])
        SentNotice.objects.filter(channel=channel, at__lt=at - KEPT).delete()
        SentNotice.objects.bulk_create(
            [
                SentNotice(channel=channel, about=about, event=event, at=at, message=message.id)
                for about, event in draft.about
            ],
            ignore_conflicts=True,
        )
        body = draft.notice.to_json()
        return messages.Content(body=body, occurred_at=at, gives_up_at=at + WINDOW)

    def send(self, message: OutboxMessage) -> messages.AttemptResult | None:
        """Send the notice. None if the person is not to be told any more: it was decided, or they may not."""
        channel = _channel(message)
        if channel is None or message.body is None or not channel.person.is_active:
            return None
        written = notice.read_notice(message.body)
        if written.requests and not _waits(channel, written.requests):
            return None
        answer = TRANSPORTS[channel.kind].send(channel, written, message.id)
        if answer is None:
            channel.delete()
            return None
        if answer.is_taken:
            channel.confirmed_at, channel.problem = clock.now(), ""
        else:
            channel.problem = plain(answer.text)[:MAX_PROBLEM]
        channel.save(update_fields=["confirmed_at", "problem"])
        channels.move(channel)
        return answer


KINDS: dict[str, MessageKind] = {NOTICE: RequestNotices(), channels.CHANNEL: ChannelNotices()}


def _channel(message: OutboxMessage) -> NoticeChannel | None:
    rows = NoticeChannel.objects.filter(pk=UUID(message.destination)).select_related("person")
    return rows.first()


def _waits(channel: NoticeChannel, requests: tuple[str, ...]) -> bool:
    return due.waiting_requests(channel).filter(pk__in=requests).exists()
