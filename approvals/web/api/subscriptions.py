"""Serves subscriptions to events in the API, to admins."""

from datetime import datetime
from uuid import UUID

from ninja import Router, Schema

from approvals.governance import subscriptions
from approvals.governance.subscriptions import (
    Act,
    EventType,
    SentMessage,
    SubscriptionTerms,
    SubscriptionView,
)
from approvals.web.api.requests import parse_id
from runtime.web.requests import Authenticated, Body
from runtime.web.schemas import with_fields_of

router = Router(tags=["subscriptions"])


class SubscriptionIn(Body):
    """Where signed webhooks go, and about which events. An empty agent, tool or risk is any; `risk` is the least one.

    With a tool or a risk there are no events of runs. `with_arguments` adds those of a call up to 32 KB, without its
    secrets.
    """

    name: str
    url: str
    events: list[EventType]
    agent: str = ""
    tool: str = ""
    risk: str = ""
    with_arguments: bool = False


@with_fields_of(SubscriptionView)
class SubscriptionOut(Schema):
    """A subscription. Its `secret` is empty but in the answer that made it."""


class SentMessageOut(Schema):
    """A message, with the answer to the last attempt and its first KB.

    `ending` is `delivered`, `given up`, `dropped`, or null while it waits.
    """

    id: UUID
    kind: str
    body: str
    occurred_at: datetime | None
    next_at: datetime
    attempts: int
    answer: str
    answer_body: str
    ended_at: datetime | None
    ending: str | None


@router.get("/subscriptions", response=list[SubscriptionOut])
def list_subscriptions(request: Authenticated) -> list[SubscriptionView]:
    """List the subscriptions by name. For admins."""
    return subscriptions.find_all(actor=request.auth)


@router.post("/subscriptions", response=SubscriptionOut)
def subscribe(request: Authenticated, body: SubscriptionIn) -> SubscriptionView:
    """Have a program told of events. Only this answer and that of `rotate` have a secret. For admins."""
    return subscriptions.subscribe(SubscriptionTerms(**body.dict()), actor=request.auth)


@router.get("/subscriptions/{subscription}/messages", response=list[SentMessageOut])
def list_messages(request: Authenticated, subscription: str) -> list[SentMessage]:
    """List the newest messages, with their answers. For admins."""
    return subscriptions.list_sent_messages(parse_id(subscription), actor=request.auth)


@router.post(
    "/subscriptions/{subscription}/messages/{message}/retry", response=list[SentMessageOut]
)
def retry_message(request: Authenticated, subscription: str, message: str) -> list[SentMessage]:
    """Send a message again that was given up, for three more days. For admins."""
    subscriptions.retry(parse_id(subscription), parse_id(message), actor=request.auth)
    return list_messages(request, subscription)


@router.post("/subscriptions/{subscription}/{act}", response=SubscriptionOut)
def change_subscription(request: Authenticated, subscription: str, act: Act) -> SubscriptionView:
    """Pause, resume, test or delete it, or rotate its secret. For admins.

    While it is paused it misses all events. For a day after a rotation the secret before signs too.
    """
    return subscriptions.change(parse_id(subscription), act, actor=request.auth)
