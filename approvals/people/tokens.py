"""Tokens of people for the API, and what all secrets that are shown once have in common: `<prefix><id>_<secret>`.

A hash is kept. A plain SHA-256 is enough for 256 random bits (OWASP ASVS 5.0, 6.5.2). Slow hashes are for passwords
that people remember.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TypeVar

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q, QuerySet
from django.db.models.functions import Now
from django.utils import timezone

from approvals import clock
from approvals.errors import UnknownToken
from approvals.models import Token
from approvals.models.signed import BearerToken, SecretRow
from approvals.rights.principals import ALL_SCOPES
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.errors import Forbidden, InvalidInput
from runtime.ports.access import Actor

_NO_HASH = "0" * 64
_USE_GRAIN = timedelta(minutes=1)  # a busy program would otherwise write a row with each request
Row = TypeVar("Row", bound=SecretRow)
AnyToken = TypeVar("AnyToken", bound=BearerToken)
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
    token = Token(owner=owner, scopes=sorted(scopes), name=name)
    plain = issue(token, days=days)
    log_change(actor, f"made the token {token.public_id} of {owner.username}")
    return token, plain


def revoke(public_id: str, *, actor: str | None, owner: str | None = None) -> Token:
    """End a token for good; a second time changes nothing. Raises UnknownToken, also for the token of another owner."""
    mine = {} if owner is None else {"owner__username": owner}
    return end_token(Token.objects.filter(**mine), public_id, actor=actor)


def revoke_all(owner: User, *, since: datetime | None = None) -> int:
    """Revoke all tokens of a person, or those created since a time, and return their number."""
    rows = Token.objects.filter(owner=owner, revoked_at=None)
    if since is not None:
        rows = rows.filter(created_at__gte=since)
    return rows.update(revoked_at=Now())


def authenticate(plain: str) -> Actor | None:
    """Return the bearer of this token; None if it is unknown, over or unsigned, or its owner disabled."""
    rows = Token.objects.select_related("owner").filter(owner__is_active=True)
    token = find_token(rows, plain)
    if token is None:
        return None
    return Actor(person=token.owner.get_username(), token=token.public_id)


def hash_secret(secret: str) -> str:
    """Return the hash of a secret of many random bits."""
    return hashlib.sha256(secret.encode()).hexdigest()


def add(row: SecretRow, row_id: str, secret: str) -> str:
    """Sign and store a row with this secret, and return the text that has both, which is not stored."""
    row.secret_hash = hash_secret(secret)
    signed_rows.add(row)
    return f"{row.PREFIX}{row_id}_{secret}"


def issue(token: BearerToken, *, days: int | None) -> str:
    """Sign and store a new token, and return its plain text. It expires after `days`, without them never."""
    token.public_id, token.created_at = secrets.token_hex(8), clock.read_time()
    token.expires_at = None if days is None else token.created_at + timedelta(days=days)
    return add(token, token.public_id, secrets.token_hex(32))


def is_secret(secret: str, stored: str | None) -> bool:
    """Tell whether a secret is the stored one. An unknown one, None, takes the same work as a wrong one."""
    return hmac.compare_digest(hash_secret(secret), _NO_HASH if stored is None else stored)


def find(among: QuerySet[Row], plain: str) -> Row | None:
    """Return the row whose secret this text has; None without one, and for a row that is not signed."""
    kind = among.model
    pattern = rf"{kind.PREFIX}([0-9a-f]{{{kind.ID_DIGITS}}})_([0-9a-f]{{64}})"
    match = re.fullmatch(pattern, plain)
    if match is None:
        return None
    row = among.filter(pk=match[1]).first()
    matches = is_secret(match[2], None if row is None else row.secret_hash)
    return row if matches and row is not None and signed_rows.is_valid(row) else None


def find_token(among: QuerySet[AnyToken], plain: str) -> AnyToken | None:
    """Return the token with this text, and record its use. None if it is unknown, over or unsigned."""
    valid = among.filter(revoked_at=None).exclude(expires_at__lte=Now())
    token = find(valid, plain)
    if token is None:
        return None
    if token.last_used_at is None or abs(timezone.now() - token.last_used_at) > _USE_GRAIN:
        unused = Q(last_used_at=None) | Q(last_used_at__lt=Now() - _USE_GRAIN)
        among.filter(unused, pk=token.pk).update(last_used_at=Now())
    return token


def end_token(among: QuerySet[AnyToken], public_id: str, *, actor: str | None) -> AnyToken:
    """End a token for good; a second time changes nothing. Raise UnknownToken."""
    with transaction.atomic():
        token = among.select_for_update(no_key=True, of=("self",)).filter(pk=public_id).first()
        if token is None:
            raise UnknownToken(public_id)
        if token.revoked_at is None:
            token.revoked_at = clock.read_time()
            token.save(update_fields=["revoked_at"])
            holder = getattr(token, token.HOLDER)
            log_change(actor, f"revoked the {token.KIND} {public_id} of {holder}")
    return token
