"""Finds the news that are due on a channel, each told once: requests to decide now, and own runs.

The outbox has two kinds of messages for them: one that looks at a new request, and one for each channel.

A trigger adds the first with the request. When its people are to be told, and again some time before the deadline, it
has all channels looked at. Every channel is also looked at now and then, because people may decide a request later:
as deputies, or with a new right.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TypeVar
from uuid import UUID, uuid5

from django.db.models import BooleanField, Exists, OuterRef, Q, QuerySet
from django.db.models.expressions import RawSQL

from approvals import clock
from approvals.models import (
    IN_DOUBT,
    Approval,
    NoticeChannel,
    NoticeTimes,
    OutboxMessage,
    SentNotice,
)
from approvals.notices import channels, notice
from approvals.notices.channels import compute_digest_end, find_hours, is_quiet
from approvals.notices.transports import TRANSPORTS
from approvals.outbox import messages
from approvals.outbox.messages import CHANNEL, MessageKind
from approvals.requests import verification
from approvals.rights import approval_rights, principals
from runtime.core.values.enums import RISKS, Risk
from runtime.core.values.texts import clean_text
from runtime.keyring import sealing
from runtime.models import Run
from runtime.ports import wiring
from runtime.ports.access import Actor

# How long a request waits in the inbox before its people are told. A call in doubt counts as high risk.
DELAYS: Mapping[Risk, timedelta] = {
    Risk.HIGH: timedelta(0),
    Risk.MEDIUM: timedelta(minutes=5),
    Risk.LOW: timedelta(hours=1),
}
PAUSE = timedelta(minutes=10)  # between two notices on a channel, unless a request is urgent
REMINDER_SHARE = 0.25  # of the time to decide is left at the reminder
FIRST, REMINDER, ESCALATED = EVENTS = "", "reminder", "escalated"  # of a request
NOTES = {REMINDER: "Reminder", ESCALATED: "Escalated"}
_ENDS_SOON = (
    "approvals_approval.expires_at"
    f" - (approvals_approval.expires_at - approvals_approval.created_at) * {REMINDER_SHARE} <= %s"
)
MAX_IN_A_NOTICE = 200  # the rest follows in the next one
OLDEST = timedelta(days=1)  # of news of runs: later the person has been on the pages
Row = TypeVar("Row", Run, Approval)
NOTICE = "notice"  # the kind of the message about a request, also in the trigger
IDLE = timedelta(minutes=10)  # between two looks at a channel
KEPT = timedelta(days=90)
MAX_PROBLEM = 300


# A notice, and the requests or runs that its channel has then been told of, each with the event.
DueNotice = tuple[notice.Notice, Sequence[tuple[UUID, str]]]


def compute_times_to_tell(approval: Approval) -> list[datetime]:
    """Return when the people of a request are told: after its delay, and again before its deadline."""
    delay = timedelta(0) if approval.is_in_doubt else DELAYS[Risk(approval.risk)]
    times = [approval.created_at + delay]
    if approval.expires_at is not None:
        share = (approval.expires_at - approval.created_at) * REMINDER_SHARE
        times.append(approval.expires_at - share)
    return times


def find_due(channel: NoticeChannel, at: datetime) -> DueNotice | None:
    """Return the next notice on a channel, None if nothing is due."""
    if channel.confirmed_at is None:
        return notice.write_first(channel.kind), ()
    hours = find_hours(channel.person.get_username())
    return _find_due_requests(channel, at, hours) or _find_due_runs(channel, at, hours)


def select_waiting_requests(channel: NoticeChannel) -> QuerySet[Approval]:
    """Return the requests that the person of this channel may decide now."""
    principal = principals.find_principal(Actor(person=channel.person.get_username()))
    return Approval.objects.filter(
        approval_rights.match_decidable_requests(principal), status=Approval.Status.PENDING
    )


def may_tell(urgent: bool, last: datetime | None, at: datetime) -> bool:
    """Tell whether a channel on which a notice went out at `last` gets the next one now."""
    return urgent or last is None or at - last >= PAUSE


def _find_due_requests(
    channel: NoticeChannel, at: datetime, hours: NoticeTimes
) -> DueNotice | None:
    if not channel.from_risk:
        return None
    waiting = select_waiting_requests(channel)
    events = {
        row: [event for event in EVENTS if getattr(row, f"tells_{event}")]
        for row in _select_due(waiting, channel, at, hours)
        if verification.find_fault(row) is None
        and (not is_quiet(hours, at) or (hours.urgent_at_night and notice.is_urgent(row)))
    }
    urgent = any(notice.is_urgent(row) or FIRST not in events[row] for row in events)
    if not events or not may_tell(urgent, _find_last_time(channel), at):
        return None
    # A first notice says all there is to say, so its request is not told again for a reason that it has already.
    notes = {row.pk: NOTES[events[row][-1]] for row in events if FIRST not in events[row]}
    content = notice.choose_detail(channel)
    written = notice.write_requests(list(events), waiting.count(), content, notes)
    return written, [(row.pk, event) for row in events for event in events[row]]


def _select_due(
    waiting: QuerySet[Approval], channel: NoticeChannel, at: datetime, hours: NoticeTimes
) -> QuerySet[Approval]:
    """Return the waiting requests of which something is due to be told, the oldest first.

    Each says of which event it is to tell: of the first also when it is told for another reason.
    """
    risks = RISKS[RISKS.index(Risk(channel.from_risk)) :]
    ends_soon = Q(RawSQL(_ENDS_SOON, [at], output_field=BooleanField()))  # noqa: S611 - a constant
    ripe = IN_DOUBT | ends_soon
    for risk in risks:
        # A digest has the requests that were due when its hour began; the others wait for the next hour.
        until = at if risk is Risk.HIGH else compute_digest_end(hours, at)
        ripe |= Q(risk=risk, created_at__lte=until - DELAYS[risk])
    sent = SentNotice.objects.filter(channel=channel, about=OuterRef("pk"))
    untold = {event: ~Exists(sent.filter(event=event)) for event in EVENTS}
    reminder, escalation = ends_soon & untold[REMINDER], Q(escalated__gt=0) & untold[ESCALATED]
    tells = {"tells_": untold[FIRST], "tells_reminder": reminder, "tells_escalated": escalation}
    due = ripe & untold[FIRST] | reminder | escalation
    rows = waiting.filter(Q(risk__in=risks) | IN_DOUBT, due, created_at__gte=channel.since)
    return rows.annotate(**tells).order_by("created_at", "id")[:MAX_IN_A_NOTICE]


def _find_due_runs(channel: NoticeChannel, at: datetime, hours: NoticeTimes) -> DueNotice | None:
    """Return the news of the person's own runs, without those that they may not read any more."""
    if not channel.runs or is_quiet(hours, at) or not may_tell(False, _find_last_time(channel), at):
        return None
    since = max(channel.since, at - OLDEST)
    actor = Actor(person=channel.person.get_username())
    readable = Run.objects.filter(
        wiring.resolve_access().select_readable_runs(actor), requester=actor.person, removed_at=None
    )
    ended = _select_untold(
        readable.filter(ended_at__gte=since, ended_at__lte=compute_digest_end(hours, at)), channel
    ).order_by("ended_at", "id")
    news = {run.pk: (run, str(run.status)) for run in ended[:MAX_IN_A_NOTICE]}
    released = list(_list_released(channel, since, at))
    runs = readable.in_bulk([approval.run_id for approval in released])
    for approval in released:
        if approval.run_id in runs:
            news[approval.pk] = runs[approval.run_id], "a text for you was released"
    about = list(news)[:MAX_IN_A_NOTICE]
    if not about:
        return None
    written = notice.write_runs([news[pk] for pk in about], notice.choose_detail(channel))
    return written, [(pk, FIRST) for pk in about]


def _list_released(channel: NoticeChannel, since: datetime, at: datetime) -> Iterator[Approval]:
    """Yield the released messages of a run that has not ended: requests whose call has a text for its requester."""
    rows = Approval.objects.filter(
        Q(effective_at=None) | Q(effective_at__lte=at),
        requester=channel.person.get_username(),
        status=Approval.Status.APPROVED,
        decided_at__gte=since,
        args__contains=sealing.MARK,
        run__ended_at=None,
    )
    for approval in _select_untold(rows, channel).order_by("decided_at", "id")[:MAX_IN_A_NOTICE]:
        if verification.find_fault(approval) is None and sealing.list_held_args(
            approval.tool, json.loads(approval.args)
        ):
            yield approval


def _select_untold(rows: QuerySet[Row], channel: NoticeChannel) -> QuerySet[Row]:
    return rows.exclude(Exists(SentNotice.objects.filter(channel=channel, about=OuterRef("pk"))))


def _find_last_time(channel: NoticeChannel) -> datetime | None:
    """Return when a notice last went out on this channel."""
    rows = SentNotice.objects.filter(channel=channel).order_by("-at").values_list("at", flat=True)
    return rows.first()


class RequestNotices(MessageKind):
    """Has the channels looked at when people are to be told of a request. It sends nothing."""

    def compose(self, message: OutboxMessage) -> messages.Content | datetime | None:
        """Return when to look again, None once all was told or the request is closed."""
        pending = Approval.Status.PENDING
        approval = Approval.objects.filter(pk=message.destination, status=pending).first()
        if approval is None:
            return None
        at, times = clock.read_time(), compute_times_to_tell(approval)
        upcoming = [time for time in times if time > at]
        if len(upcoming) < len(times):
            messages.wake(kind=CHANNEL)
        return min(upcoming, default=None)


class ChannelNotices(MessageKind):
    """Composes the notice that is due on a channel, and sends it by the transport of its kind."""

    def compose(self, message: OutboxMessage) -> messages.Content | datetime | None:
        """Return the next notice, with the message that follows it; when to look again; None without the channel."""
        channel = _find_channel(message)
        if channel is None:
            return None
        at = clock.read_time()
        due = find_due(channel, at) if channel.person.is_active else None
        if due is None:
            return at + IDLE
        written, news = due
        # A sender that dies before the body is stored leaves nothing of this: the outbox composes in a transaction.
        follower = uuid5(message.id, "next")  # composed again, it is the same
        messages.add([channels.build_next_message(channel, follower, at)])
        SentNotice.objects.filter(channel=channel, at__lt=at - KEPT).delete()
        SentNotice.objects.bulk_create(
            [
                SentNotice(channel=channel, about=about, event=event, at=at, message=message.id)
                for about, event in news
            ],
            ignore_conflicts=True,
        )
        body = written.model_dump_json()
        return messages.Content(body=body, occurred_at=at, gives_up_at=at + messages.WINDOW)

    def send(self, message: OutboxMessage) -> messages.AttemptResult | None:
        """Send the notice. None if the person is not to be told any more: it was decided, or they may not."""
        channel = _find_channel(message)
        if channel is None or message.body is None or not channel.person.is_active:
            return None
        written = notice.Notice.model_validate_json(message.body)
        waiting = select_waiting_requests(channel).filter(pk__in=written.requests)
        if written.requests and not waiting.exists():
            return None
        answer = TRANSPORTS[channel.kind].send(channel, written, message.id)
        if answer is None:
            channel.delete()
            return None
        if answer.is_taken:
            channel.confirmed_at, channel.problem = clock.read_time(), ""
        else:
            channel.problem = clean_text(answer.text)[:MAX_PROBLEM]
        channel.save(update_fields=["confirmed_at", "problem"])
        lane = channels.name_lane(channel)
        rows = OutboxMessage.objects.filter(destination=str(channel.pk), ended_at=None)
        rows.exclude(lane=lane).update(lane=lane)
        return answer


KINDS: dict[str, MessageKind] = {NOTICE: RequestNotices(), CHANNEL: ChannelNotices()}


def _find_channel(message: OutboxMessage) -> NoticeChannel | None:
    rows = NoticeChannel.objects.filter(pk=UUID(message.destination)).select_related("person")
    return rows.first()
