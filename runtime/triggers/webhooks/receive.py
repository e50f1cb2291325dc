"""Receives a delivery: finds its trigger by the address, verifies the signature, and keeps the event once by its id.

The id is covered by the signature, so a delivery that is sent again, by anyone, starts no second run: it is
`webhook-id` of Standard Webhooks, `id` or `event_id` in the body of Stripe and Slack, otherwise the hash of the body.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from runtime.control.transaction import atomic
from runtime.core.digest import require_json
from runtime.core.errors import NotJson
from runtime.core.limits import MAX_DELIVERY, MAX_EVENT_NAME
from runtime.errors import DeliveryTooLarge, InvalidInput, NoSuchWebhook, NotVerified
from runtime.keyring import sealing
from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import received_events, trigger_events, triggers, webhooks
from runtime.store.tables.triggers.trigger_events import State
from runtime.triggers.events import trigger
from runtime.triggers.events.trigger import Trigger, Webhook
from runtime.triggers.schedule import Status
from runtime.triggers.webhooks.signatures import Refused, Scheme, verify

PAUSED = "the trigger was paused"
KIND = "DeliveryReceived"  # of the failpoints

_IDS = {Scheme.STRIPE: "id", Scheme.SLACK: "event_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The id of a delivery, and whether it is `new`. `challenge` is for Slack, when it checks the address."""

    id: str
    new: bool
    challenge: str | None = None


def receive(address: str, headers: Mapping[str, str], body: bytes) -> Receipt:
    """Keep a delivery as an event of its trigger alone.

    Raise NoSuchWebhook, DeliveryTooLarge, NotVerified, Tampered, KeyMissing, or InvalidInput naming the wrong place.
    """
    if len(body) > MAX_DELIVERY:
        raise DeliveryTooLarge
    try:
        with atomic() as connection:
            found = _receive(connection, address, headers, body)
    except NotVerified as refused:
        with atomic() as connection:
            webhooks.refuse(connection, digest_of(address), str(refused.__cause__))
        raise
    failpoints.hit("committed", KIND, 0)
    return found


def digest_of(address: str) -> str:
    """Return the stored hash of an address."""
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()


def place_of(id: UUID) -> bytes:
    """Return the place to which the secret of a webhook is sealed."""
    return sealing.place("webhook", str(id))


def _receive(
    connection: Connection, address: str, headers: Mapping[str, str], body: bytes
) -> Receipt:
    place, one, hook = _found(connection, address)
    secret = sealing.unseal(hook.secret, place_of(place))
    scheme = Scheme(hook.scheme)
    try:
        verify(scheme, secret, hook.header, headers, body, pool.now(connection))
    except Refused as exc:
        raise NotVerified from exc
    data = _data(body)
    if scheme is Scheme.SLACK and data.get("type") == "url_verification":
        return Receipt(id="", new=False, challenge=str(data.get("challenge", "")))
    delivery = _id(scheme, headers, body, data)
    source = f"webhook:{place}"
    number = received_events.insert(
        connection,
        key=json.dumps(["webhook", str(place), delivery]),  # no event that a person sends has it
        source=source,
        id=delivery,
        name=one.definition.event,
        subject=headers.get("x-github-event", "") if scheme is Scheme.GITHUB else "",
        data=data,
        by=None,
        token=None,
    )
    if number is not None:
        trigger_events.add(connection, place, number)
        if one.status is Status.PAUSED:
            trigger_events.write(connection, place, number, state=State.SKIPPED, reason=PAUSED)
    failpoints.hit("written", KIND, 0)
    return Receipt(id=delivery, new=number is not None)


def _found(connection: Connection, address: str) -> tuple[UUID, Trigger, Webhook]:
    """Return the trigger of an address and its webhook, as the newest act says."""
    digest = digest_of(address)
    place = webhooks.trigger_at(connection, digest)
    row = None if place is None else triggers.read(connection, place)
    if row is None:
        raise NoSuchWebhook
    one = trigger.current(connection, row)
    if one.webhook is None or one.webhook.address != digest or one.status is Status.ENDED:
        raise NoSuchWebhook
    return row.id, one, one.webhook


def _data(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
        require_json(found, "body")
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInput("body", "must be JSON") from exc
    if not isinstance(found, dict):
        raise InvalidInput("body", "must be an object")
    return found


def _id(scheme: Scheme, headers: Mapping[str, str], body: bytes, data: Mapping[str, Any]) -> str:
    """Return the id of a delivery, from what its signature covers."""
    given: object = None
    if scheme is Scheme.STANDARD:
        given = headers.get("webhook-id")
    elif scheme in _IDS:
        given = data.get(_IDS[scheme])
    elif scheme is Scheme.HEADER:
        given = headers.get("idempotency-key")
    if not isinstance(given, str) or not given or "\x00" in given:
        return f"sha256:{hashlib.sha256(body).hexdigest()}"
    if len(given) > MAX_EVENT_NAME:
        raise InvalidInput("id", f"must have at most {MAX_EVENT_NAME} characters")
    return given
