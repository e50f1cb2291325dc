"""Agents outside: people provision an instance of one, with a credential `sgi_<id>_<secret>`, which is kept as a hash.

A credential never acts as a person: with it an instance asks for approvals, and reads and uses those that it asked for.
Sending a provisioning again with its key gives the same instance and credential for seven days.

The webhook of an instance is told of each request that ends. It is verified before it is stored.
"""

import json
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID, uuid4, uuid5

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Count, F, Q, QuerySet

from approvals import clock
from approvals.errors import (
    IdempotencyConflict,
    InstanceDeleted,
    UnknownInstance,
    WebhookVerificationFailed,
)
from approvals.models import Instance, InstanceWebhook, OutboxMessage, Token
from approvals.outbox import messages, webhook
from approvals.outbox.webhook import InvalidUrl
from approvals.people import tokens
from approvals.rights.access import AccessService
from approvals.rights.principals import Scope
from approvals.rules.policy import Group
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.core.documents import external_call
from runtime.core.run.continuation import RunStatus
from runtime.core.values.texts import escape_text
from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.models import Run
from runtime.ports.access import Actor
from runtime.reads.filters import split_terms

_KEPT = timedelta(days=7)  # a credential, for a repeated provisioning
_REQUEST_GRAIN = timedelta(minutes=1)  # a busy instance would otherwise write its row each time
MAX_NAME = 100
MAX_INSTANCES = 100  # instances on one page; a search finds the others
MAX_TOKENS = 100
MAX_UPDATES = 100  # that are remembered of an instance, for its repeated changes
RESOLVED = "request.resolved"  # the kind of a message
VERIFICATION = "webhook.verification"
_NAMES = UUID("6f1f5a0e-5f0b-4d0e-9a53-0b8f3e3c9d41")  # of the ids of messages


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """A webhook as its provisioner sent it; an answer never has the secret."""

    url: str
    registration_id: str
    secret: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancePage:
    """Instances, those that ended last; `omitted` is the number of further matches."""

    items: tuple[Instance, ...]
    omitted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceFields:
    """The fields of a provisioning or of a change, with its idempotency key and their fingerprint.

    A change keeps the name if it is None, and the webhook if `keeps_webhook`; otherwise None removes that.
    """

    name: str | None = None
    webhook: Webhook | None = None
    keeps_webhook: bool = True
    key: str = ""
    fingerprint: str = ""


def provision(fields: InstanceFields, *, actor: Actor) -> tuple[dict[str, Any], bool]:
    """Create an instance of the actor, or find the one that was created with this key. Without one it is new.

    Return it with its credential, in the form of the protocol, and whether it is new. Raise Forbidden; InvalidInput
    naming `name`; InstanceDeleted or IdempotencyConflict; InvalidUrl or WebhookVerificationFailed.
    """
    require_provisioner(actor)
    _check_name(fields.name)
    owner = User.objects.get(username=actor.person)
    key_hash = tokens.hash_secret(fields.key or uuid4().hex)
    with transaction.atomic():
        _lock_key(f"{owner.pk} {key_hash}")
        instance = Instance.objects.filter(owner=owner, idempotency_key=key_hash).first()
        if instance is None:
            return _create_instance(owner, fields, key_hash, actor)
    if instance.deleted_at is not None:
        raise InstanceDeleted
    if instance.fingerprint != fields.fingerprint or instance.sealed is None:
        raise IdempotencyConflict
    credential = sealing.unseal(instance.sealed, _encode_location(instance.pk))
    return {**_document(instance), "credential": {"token": credential}}, False


def find(*, instance: UUID, actor: Actor) -> dict[str, Any]:
    """Return an instance of the actor in the form of the protocol. Raise Forbidden, or UnknownInstance."""
    require_provisioner(actor)
    return _document(_read(instance, actor))


def change(fields: InstanceFields, *, instance: UUID, actor: Actor) -> dict[str, Any]:
    """Give an instance another name or webhook. Sent again with its key, it changes nothing.

    Raise Forbidden; InvalidInput naming `name`; UnknownInstance; IdempotencyConflict; InvalidUrl or
    WebhookVerificationFailed.
    """
    require_provisioner(actor)
    _check_name(fields.name)
    key_hash = tokens.hash_secret(fields.key)
    with transaction.atomic():
        _lock_key(f"{instance} {key_hash}")
        earlier = _read(instance, actor).updates.get(key_hash)
        if earlier is not None:
            if earlier["fingerprint"] != fields.fingerprint:
                raise IdempotencyConflict
            first: dict[str, Any] = earlier["answer"]
            return first
        if fields.webhook is not None:
            _verify(fields.webhook, instance, actor)
        row = _read(instance, actor, locks=True)
        if not fields.keeps_webhook:
            put_webhook(row, fields.webhook)
        row.name = row.name if fields.name is None else escape_text(fields.name)
        answer, at = _document(row), clock.read_time()
        recent = (at - _KEPT).isoformat()
        update = {"fingerprint": fields.fingerprint, "answer": answer, "at": at.isoformat()}
        updates = {**row.updates, key_hash: update}
        last = sorted(updates.items(), key=lambda update: str(update[1]["at"]))[-MAX_UPDATES:]
        row.updates = {hashed: past for hashed, past in last if past["at"] > recent}
        row.save(update_fields=["name", "updates"])
        log_change(actor.person, f"changed the instance {row.id}")
    return answer


def delete(*, instance: UUID, actor: Actor | None, any_owner: bool = False) -> None:
    """End an instance and its credential; an ended one stays so. `actor` None is the command line.

    Raise Forbidden; UnknownInstance, also for that of another person unless `any_owner`.
    """
    if actor is not None:
        require_provisioner(actor)
    with transaction.atomic():
        row = _read(instance, None if any_owner else actor, locks=True, deleted=True)
        if row.deleted_at is not None:
            return
        row.deleted_at, row.sealed = clock.read_time(), None
        row.save(update_fields=["deleted_at", "sealed"])
        put_webhook(row, None)
        log_change(None if actor is None else actor.person, f"ended the instance {row.id}")


def list_instances(search: str = "") -> InstancePage:
    """List instances, the newest first. Every word of `search` must occur in the name or the owner, or be the id.

    Raise InvalidInput naming `q`.
    """
    condition = Q()
    for _, word in split_terms(search, ("",)):
        matching = Q(name__icontains=word) | Q(owner__username__icontains=word)
        with suppress(ValueError):
            matching |= Q(pk=UUID(word))
        condition &= matching
    matches = Instance.objects.filter(condition)
    ordered = matches.order_by(F("deleted_at").desc(nulls_first=True), "-created_at", "id")
    rows = list(ordered.select_related("owner")[:MAX_INSTANCES])
    omitted = matches.count() - len(rows) if len(rows) == MAX_INSTANCES else 0
    return InstancePage(items=_fill_in_states(rows), omitted=omitted)


def read_row(instance: UUID) -> Instance:
    """Return one instance. Raise UnknownInstance."""
    return _fill_in_states([_read(instance, None, deleted=True)])[0]


def list_provisioner_tokens() -> list[Token]:
    """Return the newest valid tokens that manage instances, of people who may."""
    valid = Q(expires_at=None) | Q(expires_at__gt=clock.read_time())
    rows = _select_provisioner_tokens().filter(valid, revoked_at=None)
    return list(rows.order_by("-created_at")[:MAX_TOKENS])


def create_token(*, name: str, days: int | None, actor: Actor) -> tuple[Token, str]:
    """Create a token of the actor that manages instances alone. Raise Forbidden; InvalidInput naming `name` or `days`.

    A token that leaked must not live on in its successors, so one that only manages instances makes none: that needs
    the scope `admin` besides, or a session. And a token makes none that ends later than itself.
    """
    require_provisioner(actor)
    if actor.token is not None:
        AccessService().require(actor, Scope.ADMIN)
        last = Token.objects.get(pk=actor.token).expires_at
        # Compared as numbers, because a wrong number of days may be beyond all dates.
        if last is not None and (
            days is None or days > (last - clock.read_time()) / timedelta(days=1)
        ):
            raise InvalidInput("days", f"must end before the token that asks, at {last:%Y-%m-%d}")
    owner = User.objects.get(username=actor.person)
    scopes = [Scope.INSTANCES_MANAGE]
    return tokens.create(owner, scopes, actor=actor.person, name=name, days=days)


def revoke_token(public_id: str, *, actor: Actor) -> Token:
    """End a token of any provisioner for good; a second time changes nothing. Raise Forbidden, UnknownToken.

    A token that only manages instances ends itself alone: the others may do more than it may.
    """
    require_provisioner(actor)
    if actor.token not in (None, public_id):
        AccessService().require(actor, Scope.ADMIN)
    return tokens.end_token(_select_provisioner_tokens(), public_id, actor=actor.person)


def _select_provisioner_tokens() -> QuerySet[Token]:
    return Token.objects.select_related("owner").filter(
        scopes__contains=[Scope.INSTANCES_MANAGE],
        owner__is_active=True,
        owner__groups__name=Group.ADMINS,
    )


def record_request(instance: Instance, framework: str) -> None:
    """Record that an instance asked just now, and in which framework as it says."""
    at, framework = clock.read_time(), escape_text(framework[:MAX_NAME])
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
    AccessService().require(actor, Scope.INSTANCES_MANAGE)


def lock(instance: UUID) -> None:
    """Keep an instance from ending before the caller's transaction ends. Raise UnknownInstance if it has ended."""
    rows = Instance.objects.raw(
        "SELECT id FROM approvals_instance WHERE id = %s AND deleted_at IS NULL FOR SHARE",
        [instance],
    )
    if not list(rows):
        raise UnknownInstance


def _create_instance(
    owner: User, fields: InstanceFields, key_hash: str, actor: Actor
) -> tuple[dict[str, Any], bool]:
    at, secret, instance_id = clock.read_time(), secrets.token_hex(32), uuid4()
    if fields.webhook is not None:
        _verify(fields.webhook, instance_id, actor)
    Instance.objects.filter(sealed__isnull=False, created_at__lt=at - _KEPT).update(sealed=None)
    instance = Instance(
        id=instance_id,
        owner=owner,
        name=escape_text(fields.name or f"Instance {str(instance_id)[:8]}"),
        secret_hash=tokens.hash_secret(secret),
        created_at=at,
        idempotency_key=key_hash,
        fingerprint=fields.fingerprint,
    )
    credential = f"{Instance.PREFIX}{instance_id.hex}_{secret}"
    instance.sealed = sealing.seal(credential, _encode_location(instance.pk))
    signed_rows.add(instance)
    if fields.webhook is not None:
        put_webhook(instance, fields.webhook)
    log_change(owner.get_username(), f"provisioned the instance {instance_id}")
    return {**_document(instance), "credential": {"token": credential}}, True


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


def _document(instance: Instance) -> dict[str, Any]:
    document: dict[str, Any] = {"id": str(instance.id), "name": instance.name}
    if row := InstanceWebhook.objects.filter(instance=instance).first():
        registration = {"registration_id": row.registration_id}
        document["delivery"] = {"type": "webhook", "url": row.url, **registration}
    return {"instance": document}


def _verify(target: Webhook, instance: UUID, actor: Actor) -> None:
    """Ask the receiver for a challenge, once. Raise InvalidUrl, WebhookVerificationFailed, Forbidden.

    It may take ten seconds of a thread of the web, so one webhook of a person is verified at a time.
    """
    _lock_key(f"webhooks of {actor.person}")
    webhook.check_url(target.url, internal=True)
    challenge, message_id = str(uuid4()), str(uuid4())
    body = {
        "id": message_id,
        "type": VERIFICATION,
        "registration_id": target.registration_id,
        "instance_id": str(instance),
        "created_at": clock.to_wire(clock.read_time()),
        "challenge": challenge,
    }
    reply = webhook.post(
        target.url, secrets=[target.secret], message_id=message_id, body=json.dumps(body)
    )
    if reply.refused:
        raise InvalidUrl("url", "must be at a public address")
    try:
        answer = json.loads(reply.body) if reply.status == 200 else None
    except (ValueError, RecursionError):
        answer = None
    if answer != {"challenge": challenge}:
        raise WebhookVerificationFailed
    require_provisioner(actor)  # the receiver may have answered after the actor's token was revoked


def _lock_key(text: str) -> None:
    """Make others with the same idempotency key wait for the end of this transaction, or fail after some seconds."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(hashtextextended(%s, 0))", [text])


def _encode_location(instance: UUID, *path: str) -> bytes:
    return sealing.encode_location("instance", str(instance), *path)


def _check_name(name: str | None) -> None:
    if name is not None and not 1 <= len(name) <= MAX_NAME:
        raise InvalidInput("name", f"must have 1 to {MAX_NAME} characters")


def put_webhook(instance: Instance, target: Webhook | None) -> None:
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
        "secret": sealing.seal(target.secret, _encode_location(instance.pk, "webhook")),
    }
    if rows.update(**fields):
        messages.move(destination=str(instance.pk))
        return
    at = clock.read_time()
    InstanceWebhook.objects.create(instance=instance, since=at, **fields)
    # A run that failed may get its decision until its deadline.
    pending = Run.objects.filter(
        Q(ended_at=None) | Q(status=RunStatus.FAILED),
        agent=external_call.AGENT,
        requester=instance.owner.get_username(),
        token=str(instance.pk),
    )
    announce(instance, pending.order_by("created_at").values_list("id", flat=True), at)


def find_webhook(destination: str) -> InstanceWebhook | None:
    """Return the webhook to which messages with this destination go, None if the instance has none any more."""
    return InstanceWebhook.objects.filter(instance=UUID(destination)).first()


def unseal_webhook_secret(row: InstanceWebhook) -> str:
    """Unseal the secret of a webhook. Raise NotOurs, KeyMissing."""
    return str(sealing.unseal(row.secret, _encode_location(row.pk, "webhook")))


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


def _fill_in_states(rows: list[Instance]) -> tuple[Instance, ...]:
    """Fill in the state of each row, and how many of its requests have not ended."""
    runs: Any = Run.objects.filter(agent=external_call.AGENT, ended_at=None)
    tokens_of_rows = [str(row.id) for row in rows]
    open_runs = runs.filter(token__in=tokens_of_rows).order_by().values_list("token")
    counts = dict(open_runs.annotate(count=Count("id")))
    for row in rows:
        row.open_requests = counts.get(str(row.id), 0)
        if row.deleted_at is not None:
            row.state = "ended"
        elif not signed_rows.is_valid(row):
            row.state = "not signed"
        else:
            row.state = "active" if row.owner.is_active else "owner disabled"
    return tuple(rows)
