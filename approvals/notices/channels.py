"""The channels that a person chose, and the messages of the outbox that look after each.

A channel always has one message without a body, which is composed as soon as something is due, and is then followed by
the next one. So a channel has its notices in order, and one that hangs delays no other.

When a person wants notices: quiet hours in their zone, and a digest of the rest.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import transaction

from approvals import clock
from approvals.errors import UnknownChannel
from approvals.models import NoticeChannel, NoticeTimes, OutboxMessage
from approvals.notices.transports import TRANSPORTS
from approvals.outbox import messages
from approvals.outbox.messages import CHANNEL
from approvals.people import login
from approvals.people.preferences import find_named_zone, list_zones
from runtime.core.values.enums import RISKS
from runtime.errors import InvalidInput

MAX_CHANNELS = 10  # of each person
_HOURS = {str(hour) for hour in range(24)}


def build_next_message(channel: NoticeChannel, message: UUID, at: datetime) -> OutboxMessage:
    """Return the message that looks after a channel from then on."""
    return OutboxMessage(
        id=message,
        kind=CHANNEL,
        destination=str(channel.pk),
        lane=name_lane(channel),
        subject=f"{CHANNEL} {channel.pk}",
        next_at=at,
    )


def name_lane(channel: NoticeChannel) -> str:
    """Return the lane of a channel: with a problem another one, so that hanging attempts leave room for the others."""
    lane = TRANSPORTS[channel.kind].lane.format_map(channel.address)
    return f"{lane} again" if channel.problem else lane


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


def send_test(username: str, channel: UUID) -> None:
    """Have the first notice sent again on a channel of the person. Raise InvalidInput, UnknownChannel."""
    with transaction.atomic():
        row = _find_own(username, channel)
        _count_first(username)
        row.confirmed_at = None
        row.save(update_fields=["confirmed_at"])
        messages.wake(destination=str(row.pk))


def _count_first(username: str) -> None:
    """Raise InvalidInput naming `address` if a person had too many first notices: an address may be a stranger's."""
    until = login.count(login.NOTICES, username)
    if until is not None:
        raise InvalidInput(
            "address",
            f"gets no first notice or test now: you had {login.MAX_FIRST_NOTICES}. Try again at {until:%H:%M} UTC",
        )


def _save(row: NoticeChannel, choice: ChannelChoice) -> None:
    if row.confirmed_at is None and row.kind != NoticeChannel.Kind.SLACK:
        _count_first(row.person.get_username())
    row.from_risk, row.runs, row.shows = choice.from_risk, choice.runs, choice.shows
    row.since = clock.read_time()
    row.save()
    messages.drop(destination=str(row.pk))
    messages.add([build_next_message(row, uuid4(), row.since)])


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


def find_hours(username: str) -> NoticeTimes:
    """Return the hours of a person, who may have chosen none."""
    row = NoticeTimes.objects.filter(person__username=username).first()
    return row or NoticeTimes(zone="")


def is_quiet(hours: NoticeTimes, at: datetime) -> bool:
    """Tell whether these are quiet hours, which may go over midnight."""
    if hours.quiet_from is None or hours.quiet_until is None:
        return False
    local = _convert_to_zone(hours, at).time()
    if hours.quiet_from < hours.quiet_until:
        return hours.quiet_from <= local < hours.quiet_until
    return local >= hours.quiet_from or local < hours.quiet_until


def compute_digest_end(hours: NoticeTimes, at: datetime) -> datetime:
    """Return until when something must have come to be told now: the last hour of the digest, or now."""
    if not hours.digest:
        return at
    local = _convert_to_zone(hours, at)
    past = [hour for hour in hours.digest if hour <= local.hour]
    day = local if past else local - timedelta(days=1)
    return day.replace(hour=max(past or hours.digest), minute=0, second=0, microsecond=0)


def _convert_to_zone(hours: NoticeTimes, at: datetime) -> datetime:
    return at.astimezone(find_named_zone(hours.zone) or UTC)


def save_hours(
    username: str,
    *,
    zone: str,
    quiet_from: str,
    quiet_until: str,
    urgent_at_night: bool,
    digest: str,
) -> None:
    """Save the hours of a person; those of the digest have commas. Raise InvalidInput naming a field."""
    if zone not in list_zones():
        raise InvalidInput("zone", "must be a time zone as Europe/Berlin")
    if bool(quiet_from) is not bool(quiet_until) or (quiet_from and quiet_from == quiet_until):
        raise InvalidInput("quiet_until", "must be another time than the first, or both empty")
    hours = digest.replace(",", " ").split()
    if not all(text in _HOURS for text in hours):
        raise InvalidInput("digest", "must be hours from 0 to 23")
    times = dict[str, time | None]()
    for field, text in (("quiet_from", quiet_from), ("quiet_until", quiet_until)):
        try:
            times[field] = time.fromisoformat(text) if text else None
        except ValueError as exc:
            raise InvalidInput(field, "must be a time as 22:00") from exc
    row = times | {"zone": zone, "urgent_at_night": urgent_at_night}
    row |= {"digest": sorted(set(map(int, hours)))}
    person = User.objects.get(username=username)
    NoticeTimes.objects.update_or_create(person=person, defaults=row)
