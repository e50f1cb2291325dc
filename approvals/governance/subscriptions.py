"""Subscriptions: admins have programs of the company told of events by signed webhooks (Standard Webhooks).

Triggers of the database write each message with its event. A program gets it at least once, and those about one run in
their order. The secret is shown when it is made; for a day after a rotation the one before signs too.
"""

import base64
import dataclasses
import json
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID, uuid4

from django.db import transaction

from approvals import clock
from approvals.errors import UnknownSubscription
from approvals.models import OutboxMessage, Subscription
from approvals.outbox import messages, webhook
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.signed.audit import log_change
from runtime.core.values.enums import RISKS
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.triggers.signatures import PREFIX

MAX_SUBSCRIPTIONS = 50  # each event looks at all of them
MAX_NAME = 100
MAX_FILTER = 200  # characters of an agent or a tool
MAX_LISTED = 50  # newest messages of one subscription
KEY_BYTES = 32
OVERLAP = timedelta(hours=24)
TEST = "subscription.test"
SentMessage = OutboxMessage  # with the answer to the last attempt


class EventType(StrEnum):
    """The events that a program can be told of."""

    RUN_STARTED = "run.started"
    RUN_WAITING = "run.waiting"
    RUN_COMPLETED = "run.completed"
    RUN_FAILED = "run.failed"
    RUN_CANCELLED = "run.cancelled"
    RUN_QUARANTINED = "run.quarantined"
    APPROVAL_REQUESTED = "approval.requested"
    APPROVAL_DECIDED = "approval.decided"  # once it cannot be undone
    APPROVAL_EXPIRED = "approval.expired"
    APPROVAL_CANCELLED = "approval.cancelled"


class Act(StrEnum):
    """The acts on a subscription."""

    PAUSE = "pause"  # it misses the events until it is resumed
    RESUME = "resume"
    ROTATE = "rotate"  # a new secret; for a day the one before signs too
    TEST = "test"  # send a message of the type `subscription.test`
    DELETE = "delete"  # what waits is not sent


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionTerms:
    """Where messages go, and about what: any agent, tool or risk if these are empty; `risk` is the least one.

    `with_arguments` adds those of a call, without its secrets. More than 32 KB are left out.
    """

    name: str
    url: str
    events: list[str]
    agent: str = ""
    tool: str = ""
    risk: str = ""
    with_arguments: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionView(SubscriptionTerms):
    """A subscription. It has its `secret` in the answer that made it."""

    id: UUID
    created_by: str
    created_at: datetime
    paused_at: datetime | None
    secret: str = ""


def subscribe(terms: SubscriptionTerms, *, actor: Actor) -> SubscriptionView:
    """Create a subscription with a new secret. Raise Forbidden, or InvalidInput naming a field."""
    AccessService().require(actor, Scope.ADMIN)
    for field, limit in (("name", MAX_NAME), ("agent", MAX_FILTER), ("tool", MAX_FILTER)):
        text = getattr(terms, field)
        if len(text) > limit or not text.isprintable():
            raise InvalidInput(field, f"must have at most {limit} printable characters")
    if not terms.name:
        raise InvalidInput("name", "is missing")
    webhook.check_url(terms.url, internal=True)
    if not terms.events or set(terms.events) - set(EventType):
        raise InvalidInput("events", "must be some of " + ", ".join(EventType))
    if terms.risk not in ("", *RISKS):
        raise InvalidInput("risk", "must be empty or one of " + ", ".join(RISKS))
    if Subscription.objects.count() >= MAX_SUBSCRIPTIONS:
        raise InvalidInput("name", f"cannot be added: there are {MAX_SUBSCRIPTIONS} subscriptions")
    subscription, secret = uuid4(), _make_secret()
    with transaction.atomic():
        row = Subscription.objects.create(
            id=subscription,
            **dataclasses.asdict(terms),
            secret=sealing.seal(secret, _encode_location(subscription)),
            created_by=actor.person,
            created_at=clock.read_time(),
        )
        log_change(actor.person, f"subscribed {subscription} to events")
    return _build_view(row, secret)


def find_all(*, actor: Actor) -> list[SubscriptionView]:
    """List all subscriptions by name. Raise Forbidden."""
    AccessService().require(actor, Scope.ADMIN)
    return [_build_view(row) for row in Subscription.objects.order_by("name", "id")]


def find(subscription: UUID, *, actor: Actor) -> SubscriptionView:
    """Return a subscription. Raise Forbidden, UnknownSubscription."""
    return _build_view(_read_row(subscription, actor))


def list_sent_messages(subscription: UUID, *, actor: Actor) -> list[SentMessage]:
    """List the newest messages to a subscription. Raise Forbidden, UnknownSubscription."""
    rows = OutboxMessage.objects.filter(destination=str(_read_row(subscription, actor).pk))
    return list(rows.order_by("-number")[:MAX_LISTED])


def change(subscription: UUID, act: Act, *, actor: Actor) -> SubscriptionView:
    """Do an act. The answer to ROTATE has the new secret. Raise Forbidden, UnknownSubscription."""
    secret = ""
    with transaction.atomic():
        row = _read_row(subscription, actor, locks=True)
        match act:
            case Act.PAUSE:
                row.paused_at = row.paused_at or clock.read_time()
            case Act.RESUME:
                row.paused_at = None
            case Act.ROTATE:
                secret = _make_secret()
                row.former_secret, row.former_until = row.secret, clock.read_time() + OVERLAP
                row.secret = sealing.seal(secret, _encode_location(row.pk))
            case Act.TEST:
                data = {"subscription": str(row.pk)}
                body = {"type": TEST, "timestamp": clock.to_wire(clock.read_time()), "data": data}
                message = OutboxMessage(
                    kind=TEST,
                    destination=str(row.pk),
                    lane=f"subscription {row.pk}",
                    subject=f"{row.pk} {uuid4()}",
                    body=json.dumps(body),
                )
                messages.add_whole(message)
            case Act.DELETE:
                pass
        if act in (Act.PAUSE, Act.DELETE):
            messages.drop(destination=str(row.pk))
        view = _build_view(row, secret)
        if act is Act.DELETE:
            row.delete()
        else:
            row.save()
        log_change(actor.person, f"changed the subscription {subscription}: {act}")
    return view


def retry(subscription: UUID, message: UUID, *, actor: Actor) -> None:
    """Send a message again that was given up, for three more days. Raise Forbidden, UnknownSubscription."""
    row = _read_row(subscription, actor)
    if not messages.revive(message, destination=str(row.pk)):
        raise UnknownSubscription
    log_change(actor.person, f"sent a message of the subscription {subscription} again")


class SubscribedEvents(messages.MessageKind):
    """Sends the messages to subscriptions. Their triggers compose them."""

    def send(self, message: OutboxMessage) -> messages.AttemptResult | None:
        """Post the message to the present address, signed with each secret that counts now."""
        row = Subscription.objects.filter(pk=message.destination, paused_at=None).first()
        if row is None or message.body is None:
            return None
        sealed = [row.secret]
        if row.former_until is not None and row.former_until > clock.read_time():
            sealed.append(row.former_secret)
        keys = [str(sealing.unseal(secret, _encode_location(row.pk))) for secret in sealed]
        return webhook.post(row.url, secrets=keys, message_id=str(message.id), body=message.body)


KINDS = dict.fromkeys([*EventType, TEST], SubscribedEvents())


def _read_row(subscription: UUID, actor: Actor, *, locks: bool = False) -> Subscription:
    AccessService().require(actor, Scope.ADMIN)
    rows = Subscription.objects.filter(pk=subscription)
    row = (rows.select_for_update() if locks else rows).first()
    if row is None:
        raise UnknownSubscription
    return row


def _make_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()


def _encode_location(subscription: UUID) -> bytes:
    return sealing.encode_location("subscription", str(subscription))


def _build_view(row: Subscription, secret: str = "") -> SubscriptionView:
    values = {
        field.name: getattr(row, field.name) for field in dataclasses.fields(SubscriptionView)
    }
    return SubscriptionView(**{**values, "secret": secret})
