"""The table of messages and their `Sender`: adds them, moves them, leases one to a sender, records its attempts.

A lease outlives the longest attempt. A sender that dies leaves its message to the next one, which sends it again with
the same id. A sender that lost its lease records nothing.

Any number of sweepers may send, each in a few threads. A destination that hangs holds its own threads for one attempt
at a time, because a lane has fewer than there are.
"""

import logging
import random
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from threading import BoundedSemaphore, Event, Lock
from typing import Any
from uuid import UUID

from django.db import connections, transaction
from django.db.models import Case, Count, F, Min, Q, QuerySet, Value, When
from django.db.models.functions import Coalesce, Now

from approvals import clock
from approvals.models import OutboxMessage
from runtime.core.values.texts import escape_text
from runtime.ports.approvals import StatementPart
from runtime.store import failpoints

log = logging.getLogger(__name__)

LEASE_SECONDS = 60.0
PER_LANE = 2  # attempts at a time
KEPT = timedelta(days=30)  # after their end
MAX_ANSWER = 200  # characters that are kept
MAX_ANSWER_BODY = 1024  # bytes that are kept
FIRST_PAUSE = timedelta(seconds=5)  # doubled after each attempt
MAX_PAUSE = timedelta(hours=1)
THREADS = 8
AFTER_AN_ERROR = timedelta(minutes=1)
WINDOW = timedelta(days=3)  # of attempts; also in the triggers
CHANNEL = "channel"  # the kind of the messages that look after the channels of people


# One row of the lane with the message that has waited longest. The inner query skips from lane to lane.
_CLAIM = """
    WITH RECURSIVE lanes AS (
        (SELECT lane FROM approvals_outboxmessage WHERE ended_at IS NULL ORDER BY lane LIMIT 1)
        UNION ALL
        SELECT (SELECT m.lane FROM approvals_outboxmessage m
            WHERE m.ended_at IS NULL AND m.lane > lanes.lane ORDER BY m.lane LIMIT 1)
        FROM lanes WHERE lanes.lane IS NOT NULL)
    UPDATE approvals_outboxmessage SET leased_until = clock_timestamp() + %(lease)s * interval '1 second'
    WHERE number = (
        SELECT due.number FROM lanes CROSS JOIN LATERAL (
            SELECT m.number, m.next_at FROM approvals_outboxmessage m
            WHERE m.lane = lanes.lane AND m.ended_at IS NULL AND m.next_at <= clock_timestamp()
                AND (m.leased_until IS NULL OR m.leased_until <= clock_timestamp())
                AND NOT EXISTS (SELECT FROM approvals_outboxmessage e
                    WHERE e.subject = m.subject AND e.ended_at IS NULL AND e.number < m.number)
            ORDER BY m.next_at LIMIT 1 FOR UPDATE SKIP LOCKED) due
        WHERE %(most)s > (SELECT count(*) FROM approvals_outboxmessage b
            WHERE b.lane = lanes.lane AND b.ended_at IS NULL AND b.leased_until > clock_timestamp())
        ORDER BY due.next_at LIMIT 1)
    RETURNING *
"""

_WAKE = """
    UPDATE approvals_outboxmessage SET next_at = coalesce(%(woken_at)s::timestamptz, clock_timestamp())
    FROM run WHERE subject = run.id::text AND ended_at IS NULL AND body IS NULL
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """The body of a message, the time of its event, and until when it is sent."""

    body: str
    occurred_at: datetime
    gives_up_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The answer to an attempt: whether the destination took the message, its words, and when it wants the next one.

    An answer by HTTP has a `status`. `refused` is an address to which nothing was sent.
    """

    is_taken: bool = False
    text: str
    after: float | None = None  # seconds
    status: int = 0
    body: bytes = b""
    refused: bool = False


def add_whole(message: OutboxMessage) -> None:
    """Add a message that has its body, and is sent from now on."""
    message.occurred_at = message.next_at = clock.read_time()
    message.gives_up_at = message.occurred_at + WINDOW
    add([message])


def add(messages: Iterable[OutboxMessage]) -> None:
    """Add messages in the caller's transaction. One whose id is known is left as it is."""
    OutboxMessage.objects.bulk_create(messages, ignore_conflicts=True)


def wake(**fields: str) -> None:
    """Have the messages with these fields composed now, if they have no body yet, in the caller's transaction."""
    # Locked in an order, because two at once would lock each other's rows.
    waiting = _select_waiting(body=None, **fields).order_by("number").select_for_update()
    OutboxMessage.objects.filter(pk__in=list(waiting.values_list("pk", flat=True))).update(
        next_at=Now()
    )


def build_wake(at: datetime | None) -> StatementPart:
    """Build the part of a run's statement that has the messages about the run composed at this time, None for at once.

    The part may wait for the statement with which a sender looks at the same message.
    """
    return StatementPart(name="woken", sql=_WAKE, parameters={"woken_at": at})


def move(*, destination: str) -> None:
    """Have the messages to a destination sent soon: its address has changed. The time to give up stays."""
    _select_waiting(destination=destination, body__isnull=False).update(next_at=Now())


def drop(*, destination: str) -> None:
    """Stop sending to a destination. Messages without a body are deleted, and may be added again."""
    rows = _select_waiting(destination=destination)
    rows.filter(body=None).delete()
    rows.update(ended_at=Now(), ending=OutboxMessage.EndState.DROPPED, leased_until=None)


def revive(message: UUID, *, destination: str) -> bool:
    """Send a message again that was given up. Return False if there is none."""
    rows = OutboxMessage.objects.filter(
        id=message, destination=destination, ending=OutboxMessage.EndState.GIVEN_UP
    )
    fields = {"ended_at": None, "ending": None, "next_at": Now()}
    return rows.update(gives_up_at=clock.read_time() + WINDOW, **fields) == 1


def claim() -> OutboxMessage | None:
    """Lease the due message that has waited longest, in a lane that is not full; None if there is none."""
    claimed = OutboxMessage.objects.raw(_CLAIM, {"lease": LEASE_SECONDS, "most": PER_LANE})
    return next(iter(claimed), None)


def begin(message: OutboxMessage, content: Content | None) -> bool:
    """Record an attempt that begins, with the body if it was composed now. Return False if the lease was lost."""
    fields = {} if content is None else asdict(content)
    for name, value in fields.items():
        setattr(message, name, value)
    message.attempts += 1
    return _select_leased(message).update(attempts=F("attempts") + 1, **fields) == 1


def finish(message: OutboxMessage, answer: AttemptResult) -> None:
    """Record the answer to an attempt: the end, or when to try again."""
    body = answer.body[:MAX_ANSWER_BODY].decode(errors="replace")
    fields = {"answer": answer.text[:MAX_ANSWER], "answer_body": escape_text(body)}
    if answer.is_taken:
        end_message(message, OutboxMessage.EndState.DELIVERED, **fields)
        return
    again = clock.read_time() + max(pause(message.attempts), timedelta(seconds=answer.after or 0))
    if message.gives_up_at is not None and again >= message.gives_up_at:
        end_message(message, OutboxMessage.EndState.GIVEN_UP, **fields)
        return
    _select_leased(message).update(leased_until=None, next_at=again, **fields)


def end_message(message: OutboxMessage, ending: OutboxMessage.EndState, **answer: str) -> None:
    """End a message, with the answer to the last attempt unless it is recorded."""
    _select_leased(message).update(ended_at=Now(), ending=ending, leased_until=None, **answer)


def look_again(message: OutboxMessage, at: datetime) -> None:
    """Return a message without anything to tell yet. If it was woken meanwhile, that time counts."""
    again = Case(When(next_at=message.next_at, then=Value(at)), default=F("next_at"))
    _select_leased(message).update(leased_until=None, next_at=again)


def prune() -> None:
    """Delete messages that ended long ago."""
    OutboxMessage.objects.filter(ended_at__lt=clock.read_time() - KEPT).delete()


def count_unsent() -> tuple[int, float]:
    """Count the messages that wait for a successful attempt. Return the age of their oldest event too, in seconds."""
    unsent = _select_waiting().filter(Q(body__isnull=False) | Q(next_at__lte=Now()))
    totals = unsent.aggregate(number=Count("pk"), oldest=Min(Coalesce("occurred_at", "next_at")))
    oldest = totals["oldest"]
    return totals["number"], 0.0 if oldest is None else (clock.read_time() - oldest).total_seconds()


def pause(attempts: int) -> timedelta:
    """Return the pause after so many attempts, with jitter, so that messages do not come back all at once."""
    doubled: timedelta = min(FIRST_PAUSE * 2 ** min(attempts - 1, 20), MAX_PAUSE)
    return doubled * random.uniform(0.75, 1.25)  # noqa: S311 - no secret depends on it


def _select_waiting(**fields: Any) -> QuerySet[OutboxMessage]:
    return OutboxMessage.objects.filter(ended_at=None, **fields)


def _select_leased(message: OutboxMessage) -> QuerySet[OutboxMessage]:
    return _select_waiting(pk=message.pk, leased_until=message.leased_until)


class MessageKind:
    """Composes and sends the messages of one kind. One that does neither drops them."""

    def compose(self, message: OutboxMessage) -> Content | datetime | None:
        """Return the content; or when to look again, before its event; None if the message is to be dropped."""
        return None

    def send(self, message: OutboxMessage) -> AttemptResult | None:
        """Make one attempt of at most ten seconds, outside of a transaction. None if there is no destination."""
        return None


class Sender:
    """Sends messages of these kinds."""

    def __init__(self, kinds: Mapping[str, MessageKind]) -> None:
        self._kinds = kinds
        self._slots = BoundedSemaphore(THREADS)
        self._claims = Lock()  # claims at once would all find the same lane free
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="outbox")

    def send_due(self, stop: Event) -> None:
        """Begin to send due messages, without waiting for answers. Threads go on until none is due."""
        prune()
        while not stop.is_set() and self._slots.acquire(blocking=False):
            message = None
            try:
                message = self._claim()
            finally:
                if message is None:
                    self._slots.release()
            if message is None:
                return
            self._pool.submit(self._send_all, message, stop)

    def _send_all(self, message: OutboxMessage | None, stop: Event) -> None:
        try:
            while message is not None:
                self.send_one(message)
                message = None if stop.is_set() else self._claim()
        except Exception:  # a lease ends by itself
            log.exception("A sender of the outbox ended")
        finally:
            connections.close_all()
            self._slots.release()

    def _claim(self) -> OutboxMessage | None:
        with self._claims:
            return claim()

    def send_one(self, message: OutboxMessage) -> None:
        """Make one attempt at a leased message. An error of ours leaves it to a later one."""
        kind = self._kinds.get(message.kind)
        try:
            if kind is None:  # of another release
                after = AFTER_AN_ERROR.total_seconds()
                finish(message, AttemptResult(text="of another release", after=after))
            elif _begin(kind, message):
                failpoints.hit("begun", "message", 0)
                if message.gives_up_at is not None and clock.read_time() >= message.gives_up_at:
                    end_message(message, OutboxMessage.EndState.GIVEN_UP)
                    return
                answer = kind.send(message)
                failpoints.hit("sent", "message", 0)
                if answer is None:
                    end_message(message, OutboxMessage.EndState.DROPPED)
                else:
                    finish(message, answer)
        except Exception:  # of any kind: the other messages do not wait for it
            log.exception("Message %s of the outbox is not sent", message.id)
            look_again(message, clock.read_time() + AFTER_AN_ERROR)


def _begin(kind: MessageKind, message: OutboxMessage) -> bool:
    """Begin an attempt. Return False if there is nothing to send now."""
    if message.body is not None:
        return begin(message, None)
    with transaction.atomic():
        composed = kind.compose(message)
        if isinstance(composed, Content):
            is_ours = begin(message, composed)
            transaction.set_rollback(not is_ours)  # with what its composer wrote
            return is_ours
        if composed is None:
            end_message(message, OutboxMessage.EndState.DROPPED)
        else:
            look_again(message, composed)
    return False
