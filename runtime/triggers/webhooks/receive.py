"""Receives a delivery: finds its trigger by the address, verifies the signature, and keeps the event once by its id.

The id is covered by the signature, so a delivery that is sent again, by anyone, starts no second run: it is
`webhook-id` of Standard Webhooks, `id` or `event_id` in the body of Stripe and Slack, otherwise the hash of the body.
GitHub signs nothing but the body, so its hash is known for as long as any id. Other senders may mean the same body
anew: there it is the same delivery only for as long as a sender repeats one or a signature is valid.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID, uuid4

from runtime.control.transaction import atomic
from runtime.core.errors import NotJson
from runtime.core.foreign_json import read_json
from runtime.core.limits import MAX_DELIVERY, MAX_EVENT_NAME
from runtime.errors import DeliveryTooLarge, InvalidInput, NoSuchWebhook, NotVerified
from runtime.keyring import sealing
from runtime.store import failpoints, pool
from runtime.store.pool import Connection
from runtime.store.tables.triggers import received_events, trigger_events, triggers, webhooks
from runtime.store.tables.triggers.trigger_events import State
from runtime.triggers.events import trigger
from runtime.triggers.events.trigger import CurrentTrigger, Webhook
from runtime.triggers.schedule import Status
from runtime.triggers.webhooks.signatures import WINDOW, Refused, Scheme, verify

REPEAT_SECONDS = 2 * WINDOW  # a signature may be from the future, and is then valid for as long
PAUSED = "the trigger was paused"
REPEATED = f"the same body came in the last {REPEAT_SECONDS // 60} minutes"
FORM = "application/x-www-form-urlencoded"
KIND = "DeliveryReceived"  # of the failpoints

_IDS = {Scheme.STRIPE: "id", Scheme.SLACK: "event_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The id of a delivery, and whether it is `new`. `skipped` says why it starts no run by itself.

    `challenge` is for Slack, when it checks the address.
    """

    id: str
    new: bool
    challenge: str | None = None
    skipped: str = ""


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
    return sealing.encode_location("webhook", str(id))


def _receive(
    connection: Connection, address: str, headers: Mapping[str, str], body: bytes
) -> Receipt:
    place, one, hook = _found(connection, address)
    secret = sealing.unseal(hook.secret, place_of(place))
    scheme = Scheme(hook.scheme)
    at = pool.now(connection)
    try:
        verify(scheme, secret, hook.header, headers, body, at)
    except Refused as exc:
        raise NotVerified from exc
    data = _data(headers, body)
    if scheme is Scheme.SLACK and data.get("type") == "url_verification":
        return Receipt(id="", new=False, challenge=str(data.get("challenge", "")))
    sent_id = _id(scheme, headers, data)
    delivery = sent_id or f"sha256:{hashlib.sha256(body).hexdigest()}"
    skipped = PAUSED if one.status is Status.PAUSED else ""
    key: tuple[str, ...] = ("webhook", str(place), delivery)  # no event that a person sends has it
    if not sent_id and scheme is not Scheme.GITHUB:
        slot = _free_slot(connection, key, at)
        skipped = skipped if slot else REPEATED
        key = (*key, slot or str(uuid4()))
    number = received_events.insert(
        connection,
        key=json.dumps(key),
        source=f"webhook:{place}",
        id=delivery,
        name=one.definition.event,
        subject=headers.get("x-github-event", "") if scheme is Scheme.GITHUB else "",
        data=data,
        by=None,
        token=None,
    )
    if number is not None:
        trigger_events.add(connection, place, number)
        if skipped:
            trigger_events.write(connection, place, number, state=State.SKIPPED, reason=skipped)
    failpoints.hit("written", KIND, 0)
    return Receipt(id=delivery, new=number is not None, skipped=skipped)


def _free_slot(connection: Connection, key: tuple[str, ...], at: datetime) -> str:
    """Return the number of this period of REPEAT_SECONDS, empty if the same body came so shortly before.

    Of two equal deliveries at the same time, the key keeps one out.
    """
    slot = int(at.timestamp()) // REPEAT_SECONDS
    keys = [json.dumps([*key, str(number)]) for number in (slot - 1, slot)]
    since = at - timedelta(seconds=REPEAT_SECONDS)
    return "" if received_events.is_kept(connection, keys, since) else str(slot)


def _found(connection: Connection, address: str) -> tuple[UUID, CurrentTrigger, Webhook]:
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


def _data(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    try:
        data = read_json(_payload(headers, body), "body")
    except NotJson as exc:
        raise InvalidInput(exc.where, exc.why) from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInput("body", "must be JSON") from exc
    if not isinstance(data, dict):
        raise InvalidInput("body", "must be an object")
    return data


def _payload(headers: Mapping[str, str], body: bytes) -> str | bytes:
    """Return the JSON of a delivery: its body, or the field `payload` of a form, as GitHub and Slack send it."""
    if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        return body
    payloads = parse_qs(body.decode()).get("payload")
    if payloads is None:
        raise InvalidInput(
            "body", "is a form without a payload: choose application/json in the sender"
        )
    return payloads[0]


def _id(scheme: Scheme, headers: Mapping[str, str], data: Mapping[str, Any]) -> str:
    """Return the id that a sender gave the delivery, if its signature covers one; else an empty text."""
    sent_id: object = None
    if scheme is Scheme.STANDARD:
        sent_id = headers.get("webhook-id")
    elif scheme in _IDS:
        sent_id = data.get(_IDS[scheme])
    elif scheme is Scheme.HEADER:
        sent_id = headers.get("idempotency-key")
    if not isinstance(sent_id, str) or "\x00" in sent_id:
        return ""
    if len(sent_id) > MAX_EVENT_NAME:
        raise InvalidInput("id", f"must have at most {MAX_EVENT_NAME} characters")
    return sent_id
