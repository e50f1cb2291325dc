"""What people do with the webhook of a trigger: make one, replace it, remove it. Each act is signed and kept.

The address is stored as its hash, and the secret is sealed: both are shown once, to the person who makes them.
"""

import base64
import secrets
from dataclasses import dataclass, replace
from uuid import UUID

from runtime.errors import InvalidInput
from runtime.keyring import sealing
from runtime.ports.access import Actor
from runtime.store.tables.triggers import webhooks
from runtime.triggers import fields
from runtime.triggers.events import changes, trigger
from runtime.triggers.events.trigger import Webhook
from runtime.triggers.webhooks.receive import digest_of, place_of
from runtime.triggers.webhooks.signatures import (
    MAX_SECRET,
    MIN_SECRET,
    PREFIX,
    Scheme,
    is_key,
)

MAX_HEADER = 60  # characters of the name of a header


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
    with changes.locked(id, actor) as held:
        kind = fields.choice(scheme, "scheme", Scheme)
        shown = _secret(kind, fields.text(secret or "", "secret").strip())
        address = secrets.token_urlsafe(24)
        hook = Webhook(
            address=digest_of(address),
            scheme=kind,
            header=_header(kind, fields.text(header or "", "header").strip()),
            secret=sealing.seal(shown, place_of(id)),
        )
        webhooks.write(held.connection, id, hook.address)
        changes.record(held, "webhook made", actor, webhook=hook)
    return NewWebhook(address=address, secret=shown)


def remove(*, id: UUID, actor: Actor) -> None:
    """Remove the webhook of a trigger. Raise as changes.change does."""
    with changes.locked(id, actor) as held:
        webhooks.delete(held.connection, id)
        after = replace(held.one, webhook=None, makers=(*held.one.makers, actor.person))
        trigger.record(held.connection, id, "webhook removed", after, actor)


def _secret(kind: Scheme, given: str) -> str:
    if not given:
        made = base64.b64encode(secrets.token_bytes(32)).decode()
        return PREFIX + made if kind is Scheme.STANDARD else secrets.token_urlsafe(32)
    if not is_key(kind, given):
        shape = f"{PREFIX} and base64" if kind is Scheme.STANDARD else "text"
        raise InvalidInput("secret", f"must be {shape} of {MIN_SECRET} to {MAX_SECRET} characters")
    return given


def _header(kind: Scheme, given: str) -> str:
    if kind is not Scheme.HEADER:
        return ""
    if not (given.isascii() and given.replace("-", "").isalnum() and len(given) <= MAX_HEADER):
        raise InvalidInput(
            "header", f"must have 1 to {MAX_HEADER} letters, digits and hyphens, such as X-Token"
        )
    return given
