"""Agents outside: people provision an instance of one, with a credential `sgi_<id>_<secret>`, which is kept as a hash.

A credential never acts as a person: with it an instance asks for approvals, and reads and uses those that it asked for.
Sending a provisioning again with its key gives the same instance and credential for seven days.
"""

import hashlib
import hmac
import re
import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction

from approvals import clock
from approvals.errors import IdempotencyConflict, InstanceDeleted, UnknownInstance
from approvals.models import Instance
from approvals.rights import principals
from approvals.rights.access import require
from approvals.rights.scopes import Scope
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.core.values.limits import escape_text
from runtime.errors import Forbidden, InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor

_FORMAT = re.compile(r"sgi_([0-9a-f]{32})_([0-9a-f]{64})")
_NO_HASH = "0" * 64
_KEPT = timedelta(days=7)  # a credential, for a repeated provisioning
MAX_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceView:
    """An instance, and its credential for the answer of its provisioning."""

    id: UUID
    name: str
    credential: str = ""
    created: bool = False


def provision(*, name: str | None, key: str, fingerprint: str, actor: Actor) -> InstanceView:
    """Create an instance of the actor, or return the one that was created with this key.

    Raise Forbidden; InvalidInput naming `instance_name`; InstanceDeleted or IdempotencyConflict.
    """
    require_provisioner(actor)
    _check_name(name)
    owner = User.objects.get(username=actor.person)
    key_hash = digest(key)
    try:
        with transaction.atomic():
            return _created(owner, name, key_hash, fingerprint, actor)
    except IntegrityError:
        instance = Instance.objects.get(owner=owner, idempotency_key=key_hash)
    if instance.deleted_at is not None:
        raise InstanceDeleted
    if instance.fingerprint != fingerprint or instance.sealed is None:
        raise IdempotencyConflict
    return _view(instance, credential=sealing.unseal(instance.sealed, _location(instance)))


def find(*, instance: UUID, actor: Actor) -> InstanceView:
    """Return an instance of the actor. Raise Forbidden, or UnknownInstance."""
    require_provisioner(actor)
    return _view(_read(instance, actor))


def rename(
    *, instance: UUID, name: str | None, key: str, fingerprint: str, actor: Actor
) -> InstanceView:
    """Give an instance another name, unless it is None. Sent again with its key, it changes nothing.

    Raise Forbidden; InvalidInput naming `instance_name`; UnknownInstance; IdempotencyConflict.
    """
    require_provisioner(actor)
    _check_name(name)
    with transaction.atomic():
        row = _read(instance, actor, locks=True)
        earlier = row.updates.get(digest(key))
        if earlier is not None:
            if earlier["fingerprint"] != fingerprint:
                raise IdempotencyConflict
            return _view(row, name=earlier["name"])
        row.name = row.name if name is None else escape_text(name)
        at = clock.now()
        recent = (at - _KEPT).isoformat()
        updates = {hashed: past for hashed, past in row.updates.items() if past["at"] > recent}
        change = {"fingerprint": fingerprint, "name": row.name, "at": at.isoformat()}
        row.updates = {**updates, digest(key): change}
        row.save(update_fields=["name", "updates"])
        log_change(actor.person, f"changed the instance {row.id}")
    return _view(row)


def delete(*, instance: UUID, actor: Actor) -> bool:
    """End an instance and its credential. Return False if it had ended before. Raise Forbidden, UnknownInstance."""
    require_provisioner(actor)
    with transaction.atomic():
        row = _read(instance, actor, locks=True, deleted=True)
        if row.deleted_at is not None:
            return False
        row.deleted_at, row.sealed = clock.now(), None
        row.save(update_fields=["deleted_at", "sealed"])
        log_change(actor.person, f"ended the instance {row.id}")
    return True


def authenticate(plain: str) -> Instance | None:
    """Return the instance of this credential; None if it is unknown, ended or unsigned, or its owner disabled."""
    match = _FORMAT.fullmatch(plain)
    if match is None:
        return None
    public_id, secret = match.groups()
    instance = Instance.objects.select_related("owner").filter(pk=UUID(public_id)).first()
    # The same work for an unknown id as for a wrong secret.
    stored = _NO_HASH if instance is None else instance.secret_hash
    matches = hmac.compare_digest(digest(secret), stored)
    if instance is None or not matches or instance.deleted_at or not instance.owner.is_active:
        return None
    return instance if signed_rows.is_valid(instance) else None


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


def digest(text: str) -> str:
    """Return the hash of a secret of many random bits, or of an idempotency key."""
    return hashlib.sha256(text.encode()).hexdigest()


def _created(
    owner: User, name: str | None, key_hash: str, fingerprint: str, actor: Actor
) -> InstanceView:
    at, secret, instance_id = clock.now(), secrets.token_hex(32), uuid4()
    Instance.objects.filter(sealed__isnull=False, created_at__lt=at - _KEPT).update(sealed=None)
    instance = Instance(
        id=instance_id,
        owner=owner,
        name=escape_text(name or f"Instance {str(instance_id)[:8]}"),
        secret_hash=digest(secret),
        created_at=at,
        idempotency_key=key_hash,
        fingerprint=fingerprint,
    )
    credential = f"sgi_{instance_id.hex}_{secret}"
    instance.sealed = sealing.seal(credential, _location(instance))
    signed_rows.add(instance)
    log_change(actor.person, f"provisioned the instance {instance_id}")
    return _view(instance, credential=credential, created=True)


def _read(instance: UUID, actor: Actor, *, locks: bool = False, deleted: bool = False) -> Instance:
    rows = Instance.objects.select_related("owner")
    if locks:
        rows = rows.select_for_update(no_key=True, of=("self",))
    row = rows.filter(pk=instance, owner__username=actor.person).first()
    if row is None or (row.deleted_at is not None and not deleted):
        raise UnknownInstance
    return row


def _view(instance: Instance, **fields: Any) -> InstanceView:
    values = {"name": instance.name, **fields}
    return InstanceView(id=instance.id, **values)


def _location(instance: Instance) -> bytes:
    return sealing.encode_location("instance", str(instance.id))


def _check_name(name: str | None) -> None:
    if name is not None and not 1 <= len(name) <= MAX_NAME:
        raise InvalidInput("instance_name", f"must have 1 to {MAX_NAME} characters")
