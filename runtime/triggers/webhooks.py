"""Webhooks of triggers: people make and remove them; a delivery is verified, and becomes an event once by its id.

The address is stored as its hash, and the secret is sealed: both are shown once, to the person who makes them.

The id is covered by the signature, so a delivery that is sent again, by anyone, starts no second run: it is
`webhook-id` of Standard Webhooks, `id` or `event_id` in the body of Stripe and Slack, otherwise the hash of the body.
GitHub signs nothing but the body, so its hash is known for as long as any id. Other senders may mean the same body
anew: there it is the same delivery only for as long as a sender repeats one or a signature is valid.
"""

import base64
import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import parse_qs
from uuid import UUID, uuid4

from runtime.control.user_actions import open_transaction
from runtime.core.values.errors import NotJson
from runtime.core.values.json_values import read_json
from runtime.core.values.limits import MAX_DELIVERY, MAX_EVENT_NAME
from runtime.errors import DeliveryTooLarge, InvalidInput, NoSuchWebhook, NotVerified
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.store import failpoints, pool
from runtime.store.tables import occurrences, received_events, trigger_rows, trigger_sources
from runtime.store.tables.occurrences import OccurrenceState
from runtime.triggers import changes, fields, signatures, trigger
from runtime.triggers.event_definition import EventDefinition
from runtime.triggers.trigger import SealedWebhook, SignedTrigger, TriggerStatus

MAX_HEADER = 60  # characters of the name of a header
REPEAT_SECONDS = (
    2 * signatures.WINDOW
)  # a signature may be from the future, and is then valid for as long
PAUSED = "the trigger was paused"
REPEATED = f"the same body came in the last {REPEAT_SECONDS // 60} minutes"
FORM = "application/x-www-form-urlencoded"
FAILPOINT = "DeliveryReceived"

_IDS = {signatures.Scheme.STRIPE: "id", signatures.Scheme.SLACK: "event_id"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Receipt:
    """The id of a delivery, and whether it is `new`. `skipped` says why it starts no run by itself.

    `challenge` is for Slack, when it checks the address.
    """

    id: str
    new: bool
    challenge: str | None = None
    skipped: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWebhook:
    """The last part of the address and the secret, which are shown now and never again."""

    address: str
    secret: str


def make(
    *, id: UUID, scheme: object, header: object = "", secret: object = "", actor: Actor
) -> NewWebhook:
    """Give a trigger a webhook, or another address and secret. Without a secret one is made.

    Raise as changes.change does, or InvalidInput naming the field.
    """
    with changes.lock(trigger_rows.TriggerKind.EVENT, id, actor) as locked:
        kind = fields.read_choice(scheme, "scheme", signatures.Scheme)
        plain = fields.read_text(secret or "", "secret").strip()
        if plain and not signatures.is_key(kind, plain):
            shape = (
                f"{signatures.PREFIX} and base64" if kind is signatures.Scheme.STANDARD else "text"
            )
            limits = f"{signatures.MIN_SECRET} to {signatures.MAX_SECRET}"
            raise InvalidInput("secret", f"must be {shape} of {limits} characters")
        if not plain and kind is signatures.Scheme.STANDARD:
            plain = signatures.PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()
        elif not plain:
            plain = secrets.token_urlsafe(32)
        name = fields.read_text(header or "", "header").strip()
        is_name = name.isascii() and name.replace("-", "").isalnum() and len(name) <= MAX_HEADER
        if kind is signatures.Scheme.HEADER and not is_name:
            raise InvalidInput(
                "header",
                f"must have 1 to {MAX_HEADER} letters, digits and hyphens, such as X-Token",
            )
        address = secrets.token_urlsafe(24)
        webhook = SealedWebhook(
            address=hash_address(address),
            scheme=kind,
            header=name if kind is signatures.Scheme.HEADER else "",
            secret=sealing.seal(plain, make_sealing_label(id)),
        )
        trigger_sources.write_webhook(locked.connection, id, webhook.address)
        changes.record_act(locked, "webhook made", actor, webhook=webhook)
    return NewWebhook(address=address, secret=plain)


def remove(*, id: UUID, actor: Actor) -> None:
    """Remove the webhook of a trigger. Raise as changes.change does."""
    with changes.lock(trigger_rows.TriggerKind.EVENT, id, actor) as locked:
        trigger_sources.delete_webhook(locked.connection, id)
        makers = (*locked.trigger.makers, actor.person)
        after = replace(locked.trigger, webhook=None, makers=makers)
        trigger.record_act(locked.connection, after, "webhook removed", actor)


def receive(address: str, headers: Mapping[str, str], body: bytes) -> Receipt:
    """Keep a delivery as an event of its trigger alone.

    Raise NoSuchWebhook, DeliveryTooLarge, NotVerified, Tampered, KeyMissing, or InvalidInput naming the wrong field.
    """
    if len(body) > MAX_DELIVERY:
        raise DeliveryTooLarge
    try:
        with open_transaction() as connection:
            receipt = _receive(connection, address, headers, body)
    except NotVerified as refused:
        with open_transaction() as connection:
            trigger_sources.refuse(connection, hash_address(address), str(refused.__cause__))
        raise
    failpoints.hit("committed", FAILPOINT, 0)
    return receipt


def hash_address(address: str) -> str:
    """Return the stored hash of an address."""
    return hashlib.sha256(address.encode("utf-8", "surrogatepass")).hexdigest()


def make_sealing_label(id: UUID) -> bytes:
    """Return the label under which the secret of a webhook is sealed."""
    return sealing.encode_location("webhook", str(id))


def _receive(
    connection: pool.Connection, address: str, headers: Mapping[str, str], body: bytes
) -> Receipt:
    receiver, webhook = _find_trigger(connection, address)
    secret = sealing.unseal(webhook.secret, make_sealing_label(receiver.id))
    scheme = signatures.Scheme(webhook.scheme)
    at = pool.read_clock(connection)
    try:
        signatures.verify(scheme, secret, webhook.header, headers, body, at)
    except signatures.InvalidSignature as exc:
        raise NotVerified from exc
    data = _parse_body(headers, body)
    if scheme is signatures.Scheme.SLACK and data.get("type") == "url_verification":
        return Receipt(id="", new=False, challenge=str(data.get("challenge", "")))
    sent_id = _read_delivery_id(scheme, headers, data)
    delivery = sent_id or f"sha256:{hashlib.sha256(body).hexdigest()}"
    skipped = PAUSED if receiver.status is TriggerStatus.PAUSED else ""
    # No event that a person sends has this key.
    key: tuple[str, ...] = ("webhook", str(receiver.id), delivery)
    if not sent_id and scheme is not signatures.Scheme.GITHUB:
        slot = _free_slot(connection, key, at)
        skipped = skipped if slot else REPEATED
        key = (*key, slot or str(uuid4()))
    event = received_events.VerifiedEvent(
        key=json.dumps(key),
        source=f"webhook:{receiver.id}",
        id=delivery,
        name=receiver.definition.event,
        subject=headers.get("x-github-event", "") if scheme is signatures.Scheme.GITHUB else "",
        data=json.dumps(data, ensure_ascii=False),
        by=None,
        at=pool.read_clock(connection),
    )
    number = received_events.insert(connection, event)
    if number is not None:
        occurrences.add_event(connection, receiver.id, number)
        if skipped:
            occurrences.write(
                connection, receiver.id, number, state=OccurrenceState.SKIPPED, reason=skipped
            )
    failpoints.hit("written", FAILPOINT, 0)
    return Receipt(id=delivery, new=number is not None, skipped=skipped)


def _free_slot(connection: pool.Connection, key: tuple[str, ...], at: datetime) -> str:
    """Return the number of this period of REPEAT_SECONDS, empty if the same body came so shortly before.

    Of two equal deliveries at the same time, the key keeps one out.
    """
    slot = int(at.timestamp()) // REPEAT_SECONDS
    keys = [json.dumps([*key, str(number)]) for number in (slot - 1, slot)]
    since = at - timedelta(seconds=REPEAT_SECONDS)
    return "" if received_events.is_kept(connection, keys, since) else str(slot)


def _find_trigger(
    connection: pool.Connection, address: str
) -> tuple[SignedTrigger[EventDefinition], SealedWebhook]:
    """Return the trigger of an address and its webhook, as the newest act says."""
    digest = hash_address(address)
    trigger_id = trigger_sources.find_trigger_at(connection, digest)
    row = None if trigger_id is None else trigger_rows.read(connection, trigger_id)
    if row is None:
        raise NoSuchWebhook
    receiver = trigger.read_signed(connection, row)
    webhook = receiver.webhook
    if webhook is None or webhook.address != digest or receiver.status is TriggerStatus.ENDED:
        raise NoSuchWebhook
    return receiver, webhook


def _parse_body(headers: Mapping[str, str], body: bytes) -> dict[str, Any]:
    payload: str | bytes = body
    try:
        if headers.get("content-type", "").partition(";")[0].strip().lower() == FORM:
            # GitHub and Slack send JSON as a field of it.
            payloads = parse_qs(body.decode()).get("payload")
            if payloads is None:
                raise InvalidInput(
                    "body", "is a form without a payload: choose application/json in the sender"
                )
            payload = payloads[0]
        data = read_json(payload, "body")
    except NotJson as exc:
        raise InvalidInput(exc.field, exc.detail) from exc
    except (ValueError, RecursionError) as exc:
        raise InvalidInput("body", "must be JSON") from exc
    if not isinstance(data, dict):
        raise InvalidInput("body", "must be an object")
    return data


def _read_delivery_id(
    scheme: signatures.Scheme, headers: Mapping[str, str], data: Mapping[str, Any]
) -> str:
    """Return the id that a sender gave the delivery, if its signature covers one; else an empty text."""
    sent_id: object = None
    if scheme is signatures.Scheme.STANDARD:
        sent_id = headers.get("webhook-id")
    elif scheme in _IDS:
        sent_id = data.get(_IDS[scheme])
    elif scheme is signatures.Scheme.HEADER:
        sent_id = headers.get("idempotency-key")
    if not isinstance(sent_id, str) or "\x00" in sent_id:
        return ""
    if len(sent_id) > MAX_EVENT_NAME:
        raise InvalidInput("id", f"must have at most {MAX_EVENT_NAME} characters")
    return sent_id
