"""Bearer tokens of the API: `sgn_<public id>_<secret>`, shown once, kept as a hash.

A plain SHA-256 is enough for 256 random bits (OWASP ASVS 5.0, 6.5.2). Slow hashes are for passwords that people
remember.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q
from django.utils import timezone

from approvals import clock
from approvals.errors import UnknownToken
from approvals.models import DirectoryToken, Token
from approvals.rights.scopes import ALL_SCOPES
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

_FORMAT = re.compile(r"sgn_([0-9a-f]{16})_([0-9a-f]{64})")
_NO_HASH = "0" * 64
_USE_GRAIN = timedelta(minutes=1)  # a busy client would otherwise write a row with each request
MAX_NAME = 60
MAX_DAYS = 3650


def create(
    owner: User,
    scopes: Collection[str],
    *,
    actor: str | None = None,
    name: str = "",
    days: int | None = None,
) -> tuple[Token, str]:
    """Create a token for its owner; the second value is its plain text, which is not stored.

    `name` says which program it is for. It expires after `days`, without them never.

    A scope beyond the owner's rights has no effect until their groups give them that right. `actor` None is the command
    line of the installation. Raise Forbidden (`not_owner`) for any other actor, admins too, because a token acts as its
    owner. Raise InvalidInput for an unknown scope, a disabled owner, and a wrong `name`
    or `days`.
    """
    if actor not in (None, owner.get_username()):
        raise Forbidden("not_owner", f"Only {owner.get_username()} can create this token.")
    if not owner.is_active:
        raise InvalidInput("owner", "is disabled")
    unknown = set(scopes) - ALL_SCOPES
    if unknown:
        raise InvalidInput("scopes", f"unknown: {', '.join(sorted(unknown))}")
    if name and (len(name) > MAX_NAME or not name.isprintable()):
        raise InvalidInput("name", f"must have at most {MAX_NAME} visible characters")
    if days is not None and not 1 <= days <= MAX_DAYS:
        raise InvalidInput("days", f"must be 1 to {MAX_DAYS}")
    secret, at = secrets.token_hex(32), clock.now()
    token = Token(
        public_id=secrets.token_hex(8),
        owner=owner,
        secret_hash=hash_secret(secret),
        scopes=sorted(scopes),
        name=name,
        created_at=at,
        expires_at=None if days is None else at + timedelta(days=days),
    )
    signed_rows.add(token)
    log_change(actor, f"made the token {token.public_id} of {owner.username}")
    return token, f"sgn_{token.public_id}_{secret}"


def revoke(public_id: str, *, actor: str | None, owner: str | None = None) -> Token:
    """End a token for good; a second time changes nothing. Raises UnknownToken, also for the token of another owner."""
    mine = {} if owner is None else {"owner__username": owner}
    with transaction.atomic():
        rows = Token.objects.select_for_update(no_key=True, of=("self",)).select_related("owner")
        token = rows.filter(public_id=public_id, **mine).first()
        if token is None:
            raise UnknownToken(public_id)
        if token.revoked_at is None:
            token.revoked_at = timezone.now()
            token.save(update_fields=["revoked_at"])
            log_change(actor, f"revoked the token {public_id} of {token.owner.username}")
    return token


def revoke_all(owner: User, *, since: datetime | None = None) -> int:
    """Revoke all tokens of a person, or those created since a time, and return their number."""
    rows = Token.objects.filter(owner=owner, revoked_at=None)
    if since is not None:
        rows = rows.filter(created_at__gte=since)
    return rows.update(revoked_at=timezone.now())


def authenticate(plain: str) -> Actor | None:
    """Return the bearer of this token; None if it is unknown, over or unsigned, or its owner disabled."""
    match = _FORMAT.fullmatch(plain)
    if match is None:
        return None
    public_id, secret = match.groups()
    token = Token.objects.select_related("owner").filter(public_id=public_id).first()
    matches = is_secret(secret, token.secret_hash if token else None)
    if token is None or not matches or token.revoked_at is not None or not token.owner.is_active:
        return None
    if token.expires_at is not None and token.expires_at <= timezone.now():
        return None
    if not signed_rows.is_valid(token):
        return None
    record_use(token)
    return Actor(person=token.owner.get_username(), token=token.public_id)


def hash_secret(secret: str) -> str:
    """Return the stored form of a secret."""
    return hashlib.sha256(secret.encode()).hexdigest()


def is_secret(secret: str, stored: str | None) -> bool:
    """Return whether a secret is the stored one. An unknown one, None, takes the same work as a wrong one."""
    return hmac.compare_digest(hash_secret(secret), _NO_HASH if stored is None else stored)


def record_use(token: Token | DirectoryToken) -> None:
    """Record that a token was used just now."""
    now = timezone.now()
    if token.last_used_at is None or token.last_used_at < now - _USE_GRAIN:
        unused = Q(last_used_at=None) | Q(last_used_at__lt=now - _USE_GRAIN)
        type(token).objects.filter(unused, pk=token.pk).update(last_used_at=now)
