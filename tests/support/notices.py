"""Channels of people, and the rounds in which a sweeper sends their notices."""

from uuid import UUID

from django.db.models.functions import Now

from approvals.models import OutboxMessage
from approvals.notices import channels
from approvals.notices.channels import ChannelChoice
from approvals.notices.due import KINDS
from approvals.outbox import messages
from approvals.outbox.messages import Sender


def hears(
    person: str, address: str, from_risk: str = "low", *, kind: str = "mail", runs: bool = False
) -> UUID:
    """The person adds a channel."""
    return channels.add_channel(
        person, kind, address, ChannelChoice(from_risk=from_risk, runs=runs)
    )


def send_notices() -> None:
    """Send the due messages, as a sweeper does."""
    sender = Sender(KINDS)
    while (message := messages.claim()) is not None:
        sender.send_one(message)


def look() -> None:
    """Have every open message looked at now, also one that waits or that a sender left, and send the due ones."""
    OutboxMessage.objects.filter(ended_at=None).update(next_at=Now(), leased_until=None)
    send_notices()
