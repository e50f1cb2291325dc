"""The channels that a person chose, and the messages of the outbox that look after each.

A channel always has one message without a body, which is composed as soon as something is due, and is then followed by
the next one. So a channel has its notices in order, and one that hangs delays no other.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals import clock
from approvals.errors import UnknownChannel
from approvals.models import NoticeChannel, OutboxMessage
from approvals.notices import notice
from approvals.notices.transports import TRANSPORTS
from approvals.outbox import messages
from runtime.core.values.enums import RISKS
from runtime.errors import InvalidInput

CHANNEL = "channel"  # the kind of their messages
TEST_WINDOW = timedelta(hours=1)
MAX_CHANNELS = 10  # of each person
_WAKE = """
    UPDATE approvals_outboxmessage SET next_at = clock_timestamp() WHERE number IN (
        SELECT number FROM approvals_outboxmessage
        WHERE kind = %(kind)s AND ended_at IS NULL AND body IS NULL ORDER BY number FOR UPDATE)
"""  # in an order, because two at once would lock each other's rows


def next_message(channel: NoticeChannel, message: UUID, at: datetime) -> OutboxMessage:
    """Return the message that looks after a channel from then on."""
    return OutboxMessage(
        id=message,
        kind=CHANNEL,
        destination=str(channel.pk),
        lane=_lane(channel),
        subject=f"{CHANNEL} {channel.pk}",
        next_at=at,
    )


def move(channel: NoticeChannel) -> None:
    """Put the messages of a channel into its lane of now."""
    rows = OutboxMessage.objects.filter(destination=str(channel.pk), ended_at=None)
    rows.exclude(lane=_lane(channel)).update(lane=_lane(channel))


def wake_all() -> None:
    """Have all channels looked at now."""
    with connection.cursor() as cursor:
        cursor.execute(_WAKE, {"kind": CHANNEL})


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelChoice:
    """What a person chose for a channel. An empty `from_risk` is no request."""

    from_risk: str
    runs: bool = False
    shows: str = NoticeChannel.Detail.TITLE


def find_channels(username: str) -> list[NoticeChannel]:
    """Return the channels of a person, the oldest first."""
    return list(NoticeChannel.objects.filter(person__username=username).order_by("since", "id"))


def add_channel(username: str, kind: str, address: str, choice: ChannelChoice) -> UUID:
    """Add a channel, which gets a first notice. Raise InvalidInput naming a field."""
    if kind not in TRANSPORTS:
        raise InvalidInput("kind", f"must be one of {', '.join(TRANSPORTS)}")
    _check(choice)
    channel = uuid4()
    stored = TRANSPORTS[kind].check(address.strip(), channel)
    with transaction.atomic():
        person = User.objects.select_for_update().get(username=username)
        if NoticeChannel.objects.filter(person=person).count() >= MAX_CHANNELS:
            raise InvalidInput("address", f"cannot be added: you have {MAX_CHANNELS} channels")
        row = NoticeChannel(pk=channel, person=person, kind=kind, address=stored)
        _save(row, choice)
    return channel


def add_slack(username: str) -> None:
    """Have a person told in Slack, unless they chose that before."""
    kind, detail = NoticeChannel.Kind.SLACK, NoticeChannel.Detail.ARGUMENTS
    if not NoticeChannel.objects.filter(person__username=username, kind=kind).exists():
        add_channel(username, kind, "", ChannelChoice(from_risk="low", shows=detail))


def change_channel(username: str, channel: UUID, choice: ChannelChoice) -> None:
    """Change what a channel of the person tells, from now on. Raise InvalidInput, UnknownChannel."""
    _check(choice)
    with transaction.atomic():
        _save(_find_own(username, channel), choice)


def remove_channel(username: str, channel: UUID) -> None:
    """Remove a channel of the person, with what waits on it. Raise UnknownChannel."""
    with transaction.atomic():
        row = _find_own(username, channel)
        messages.drop(destination=str(row.pk))
        row.delete()


def _lane(channel: NoticeChannel) -> str:
    """Return the lane of a channel: with a problem another one, so that hanging attempts leave room for the others."""
    return TRANSPORTS[channel.kind].lane(channel) + (" again" if channel.problem else "")


def send_test(username: str, channel: UUID) -> None:
    """Send a test notice on a channel of the person. Raise UnknownChannel."""
    with transaction.atomic():
        row, at = _find_own(username, channel), clock.now()
        message = next_message(row, uuid4(), at)
        message.subject = f"test {message.id}"  # it waits for no other notice
        message.body, message.occurred_at = notice.write_test(row.kind).to_json(), at
        message.gives_up_at = at + TEST_WINDOW
        messages.add([message])


def _save(row: NoticeChannel, choice: ChannelChoice) -> None:
    row.from_risk, row.runs, row.shows = choice.from_risk, choice.runs, choice.shows
    row.since = clock.now()
    row.save()
    messages.drop(destination=str(row.pk))
    messages.add([next_message(row, uuid4(), row.since)])


def _find_own(username: str, channel: UUID) -> NoticeChannel:
    rows = NoticeChannel.objects.select_for_update(of=("self",))
    row = rows.filter(pk=channel, person__username=username).first()
    if row is None:
        raise UnknownChannel
    return row


def _check(choice: ChannelChoice) -> None:
    for field, values in (("from_risk", ("", *RISKS)), ("shows", NoticeChannel.Detail.values)):
        if getattr(choice, field) not in values:
            raise InvalidInput(field, f"must be one of {', '.join(filter(None, values))}")
