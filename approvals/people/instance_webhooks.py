"""The webhook of an instance, which is told of each request that ends. It is verified before it is stored."""

import base64
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID, uuid4, uuid5

from django.db.models import Q

from approvals import clock
from approvals.errors import WebhookVerificationFailed
from approvals.models import Instance, InstanceWebhook, OutboxMessage
from approvals.outbox import messages, webhook
from approvals.outbox.webhook import InvalidUrl
from runtime.core.documents import external_call
from runtime.core.run.continuation import RunStatus
from runtime.keyring import sealing
from runtime.models import Run
from runtime.triggers.signatures import PREFIX

RESOLVED = "request.resolved"  # the kind of a message
VERIFICATION = "webhook.verification"
KEY_BYTES = 32
_NAMES = UUID("6f1f5a0e-5f0b-4d0e-9a53-0b8f3e3c9d41")  # of the ids of messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook as its provisioner sent it; an answer never has the secret."""

    url: str
    registration_id: str
    secret: str = ""


def is_secret(text: str) -> bool:
    """Tell whether this is a secret of Standard Webhooks with exactly 32 bytes."""
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except ValueError:
        return False
    return len(key) == KEY_BYTES and text == PREFIX + base64.b64encode(key).decode()


def verify(target: Webhook, instance: UUID) -> None:
    """Ask the receiver for a challenge, once. Raise InvalidUrl, WebhookVerificationFailed."""
    webhook.check_url(target.url)
    challenge, message_id = str(uuid4()), str(uuid4())
    body = {
        "id": message_id,
        "type": VERIFICATION,
        "registration_id": target.registration_id,
        "instance_id": str(instance),
        "created_at": clock.to_wire(clock.now()),
        "challenge": challenge,
    }
    reply = webhook.post(
        target.url, secret=target.secret, message_id=message_id, body=json.dumps(body)
    )
    if reply.refused:
        raise InvalidUrl("must be at a public address")
    try:
        answer = json.loads(reply.body) if reply.status == 200 else None
    except (ValueError, RecursionError):
        answer = None
    if answer != {"challenge": challenge}:
        raise WebhookVerificationFailed


def put(instance: Instance, target: Webhook | None) -> None:
    """Store, replace or remove the webhook of a locked instance.

    A new webhook is told of each request that ends from now on, also those made before. A replaced one gets the
    messages that were not delivered. A removed one gets nothing more.
    """
    rows = InstanceWebhook.objects.filter(instance=instance)
    if target is None:
        rows.delete()
        messages.drop(destination=str(instance.pk))
        return
    fields = {
        "url": target.url,
        "registration_id": target.registration_id,
        "secret": sealing.seal(target.secret, _location(instance.pk)),
    }
    if rows.update(**fields):
        messages.move(destination=str(instance.pk))
        return
    at = clock.now()
    InstanceWebhook.objects.create(instance=instance, since=at, **fields)
    # A run that failed may get its decision until its deadline.
    pending = Run.objects.filter(
        Q(ended_at=None) | Q(status=RunStatus.FAILED),
        agent=external_call.AGENT,
        requester=instance.owner.get_username(),
        token=str(instance.pk),
    )
    announce(instance, pending.order_by("created_at").values_list("id", flat=True), at)


def find(instance: Instance) -> Webhook | None:
    """Return the webhook of an instance without its secret, None if it has none."""
    row = InstanceWebhook.objects.filter(instance=instance).first()
    if row is None:
        return None
    return Webhook(url=row.url, registration_id=row.registration_id)


def row_of(destination: str) -> InstanceWebhook | None:
    """Return the webhook to which messages with this destination go, None if the instance has none any more."""
    return InstanceWebhook.objects.filter(instance=UUID(destination)).first()


def secret_of(row: InstanceWebhook) -> str:
    """Unseal the secret of a webhook. Raise NotOurs, KeyMissing."""
    return str(sealing.unseal(row.secret, _location(row.pk)))


def announce(instance: Instance, requests: Iterable[UUID], at: datetime) -> None:
    """Add the message about each of these requests, in the caller's transaction, if the instance has a webhook.

    A sender looks at it `at` this time, or when the request ends before.
    """
    if not InstanceWebhook.objects.filter(instance=instance).exists():
        return
    messages.add(
        OutboxMessage(
            id=uuid5(_NAMES, f"{instance.pk} {request} {RESOLVED}"),
            kind=RESOLVED,
            destination=str(instance.pk),
            lane=f"instances of {instance.owner_id}",
            subject=str(request),
            next_at=at,
        )
        for request in requests
    )


def _location(instance: UUID) -> bytes:
    return sealing.encode_location("instance", str(instance), "webhook")
