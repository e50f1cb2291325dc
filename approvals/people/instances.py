"""Agents outside: people provision an instance of one, with a credential `sgi_<id>_<secret>`, which is kept as a hash.

A credential never acts as a person: with it an instance asks for approvals, and reads and uses those that it asked for.
Sending a provisioning again with its key gives the same instance and credential for seven days.
"""

import secrets
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum, auto
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import connection, transaction

from approvals import clock
from approvals.errors import IdempotencyConflict, InstanceDeleted, UnknownInstance
from approvals.models import Instance
from approvals.people import instance_webhooks, tokens
from approvals.people.instance_webhooks import Webhook
from approvals.rights import principals
from approvals.rights.access import require
from approvals.rights.principals import Scope
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.core.values.limits import escape_text
from runtime.errors import Forbidden, InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor

_KEPT = timedelta(days=7)  # a credential, for a repeated provisioning
_REQUEST_GRAIN = timedelta(minutes=1)  # a busy instance would otherwise write its row each time
MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance, and its credential for the answer of its provisioning."""

    id: UUID
    name: str
    webhook: Webhook | None = None
    credential: str = ""
    created: bool = False


class Unchanged(Enum):
    """Says that a change leaves the webhook as it is, which None would remove."""

    WEBHOOK = auto()


def provision(
    *,
    name: str | None,
    key: str,
    fingerprint: str,
    actor: Actor,
    webhook: Webhook | None = None,
) -> InstanceView:
    """Create an instance of the actor, or return the one that was created with this key.

    Raise Forbidden; InvalidInput naming `instance_name`; InstanceDeleted or IdempotencyConflict; InvalidUrl or
    WebhookVerificationFailed.
    """
    require_provisioner(actor)
    _check_name(name)
    owner = User.objects.get(username=actor.person)
    key_hash = tokens.hash_secret(key)
    with transaction.atomic():
        _lock_key(f"{owner.pk} {key_hash}")
        instance = Instance.objects.filter(owner=owner, idempotency_key=key_hash).first()
        if instance is None:
            return _created(owner, name, key_hash, fingerprint, actor, webhook)
    if instance.deleted_at is not None:
        raise InstanceDeleted
    if instance.fingerprint != fingerprint or instance.sealed is None:
        raise IdempotencyConflict
    return _view(instance, credential=sealing.unseal(instance.sealed, _location(instance)))


def find(*, instance: UUID, actor: Actor) -> InstanceView:
    """Return an instance of the actor. Raise Forbidden, or UnknownInstance."""
    require_provisioner(actor)
    return _view(_read(instance, actor))


def change(
    *,
    instance: UUID,
    name: str | None,
    key: str,
    fingerprint: str,
    actor: Actor,
    webhook: Webhook | Unchanged | None = Unchanged.WEBHOOK,
) -> InstanceView:
    """Give an instance another name, unless it is None, or webhook. Sent again with its key, it changes nothing.

    Raise Forbidden; InvalidInput naming `instance_name`; UnknownInstance; IdempotencyConflict; InvalidUrl or
    WebhookVerificationFailed.
    """
    require_provisioner(actor)
    _check_name(name)
    with transaction.atomic():
        _lock_key(f"{instance} {tokens.hash_secret(key)}")
        earlier = _read(instance, actor).updates.get(tokens.hash_secret(key))
        if earlier is not None:
            if earlier["fingerprint"] != fingerprint:
                raise IdempotencyConflict
            sent = earlier.get("webhook")
            first = Webhook(url=sent[0], registration_id=sent[1]) if sent else None
            return InstanceView(id=instance, name=earlier["name"], webhook=first)
        if isinstance(webhook, Webhook):
            _verify(webhook, instance, actor)
        row = _read(instance, actor, locks=True)
        if not isinstance(webhook, Unchanged):
            instance_webhooks.put(row, webhook)
        row.name = row.name if name is None else escape_text(name)
        view = _view(row)
        at = clock.now()
        recent = (at - _KEPT).isoformat()
        updates = {hashed: past for hashed, past in row.updates.items() if past["at"] > recent}
        address = view.webhook and [view.webhook.url, view.webhook.registration_id]
        answer = {"fingerprint": fingerprint, "name": row.name, "webhook": address}
        row.updates = {**updates, tokens.hash_secret(key): {**answer, "at": at.isoformat()}}
        row.save(update_fields=["name", "updates"])
        log_change(actor.person, f"changed the instance {row.id}")
    return view


def delete(*, instance: UUID, actor: Actor | None, any_owner: bool = False) -> bool:
    """End an instance and its credential. Return False if it had ended before. `actor` None is the command line.

    Raise Forbidden; UnknownInstance, also for that of another person unless `any_owner`.
    """
    if actor is not None:
        require_provisioner(actor)
    with transaction.atomic():
        row = _read(instance, None if any_owner else actor, locks=True, deleted=True)
        if row.deleted_at is not None:
            return False
        row.deleted_at, row.sealed = clock.now(), None
        row.save(update_fields=["deleted_at", "sealed"])
        instance_webhooks.put(row, None)
        log_change(None if actor is None else actor.person, f"ended the instance {row.id}")
    return True


def record_request(instance: Instance, framework: str) -> None:
    """Record that an instance asked just now, and in which framework as it says."""
    at, framework = clock.now(), escape_text(framework[:MAX_NAME])
    last = instance.last_request_at
    if last is not None and last > at - _REQUEST_GRAIN and instance.framework == framework:
        return
    Instance.objects.filter(pk=instance.pk).update(last_request_at=at, framework=framework)


def authenticate(plain: str) -> Instance | None:
    """Return the instance of this credential; None if it is unknown, ended or unsigned, or its owner disabled."""
    rows = Instance.objects.select_related("owner")
    return tokens.find(rows.filter(owner__is_active=True, deleted_at=None), plain)


def require_provisioner(actor: Actor) -> None:
    """Raise Forbidden unless the actor may provision instances."""
    principal = principals.principal_of(actor)
    if principal is None:
        raise Forbidden("not_eligible", "This person may not act.")
    require(principal, Scope.INSTANCES_MANAGE)


def lock(instance: UUID) -> None:
    """Keep an instance from ending before the caller's transaction ends. Raise UnknownInstance if it has ended."""
    rows = Instance.objects.raw(
        "SELECT id FROM approvals_instance WHERE id = %s AND deleted_at IS NULL FOR SHARE",
        [instance],
    )
    if not list(rows):
        raise UnknownInstance


def _created(
    owner: User,
    name: str | None,
    key_hash: str,
    fingerprint: str,
    actor: Actor,
    webhook: Webhook | None,
) -> InstanceView:
    at, secret, instance_id = clock.now(), secrets.token_hex(32), uuid4()
    if webhook is not None:
        _verify(webhook, instance_id, actor)
    Instance.objects.filter(sealed__isnull=False, created_at__lt=at - _KEPT).update(sealed=None)
    instance = Instance(
        id=instance_id,
        owner=owner,
        name=escape_text(name or f"Instance {str(instance_id)[:8]}"),
        secret_hash=tokens.hash_secret(secret),
        created_at=at,
        idempotency_key=key_hash,
        fingerprint=fingerprint,
    )
    credential = f"{Instance.PREFIX}{instance_id.hex}_{secret}"
    instance.sealed = sealing.seal(credential, _location(instance))
    signed_rows.add(instance)
    if webhook is not None:
        instance_webhooks.put(instance, webhook)
    log_change(actor.person, f"provisioned the instance {instance_id}")
    return _view(instance, credential=credential, created=True)


def _read(
    instance: UUID, owner: Actor | None, *, locks: bool = False, deleted: bool = False
) -> Instance:
    rows = Instance.objects.select_related("owner")
    if locks:
        rows = rows.select_for_update(no_key=True, of=("self",))
    if owner is not None:
        rows = rows.filter(owner__username=owner.person)
    row = rows.filter(pk=instance).first()
    if row is None or (row.deleted_at is not None and not deleted):
        raise UnknownInstance
    return row


def _view(instance: Instance, **fields: Any) -> InstanceView:
    webhook = instance_webhooks.find(instance)
    return InstanceView(id=instance.id, name=instance.name, webhook=webhook, **fields)


def _verify(webhook: Webhook, instance: UUID, actor: Actor) -> None:
    """Verify one webhook of a person at a time: each may take ten seconds of a thread of the web."""
    _lock_key(f"webhooks of {actor.person}")
    instance_webhooks.verify(webhook, instance)


def _lock_key(text: str) -> None:
    """Make others with the same idempotency key wait for the end of this transaction, or fail after some seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [text])


def _location(instance: Instance) -> bytes:
    return sealing.encode_location("instance", str(instance.id))


def _check_name(name: str | None) -> None:
    if name is not None and not 1 <= len(name) <= MAX_NAME:
        raise InvalidInput("instance_name", f"must have 1 to {MAX_NAME} characters")
