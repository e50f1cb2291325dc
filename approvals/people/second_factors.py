"""Second factors: authenticator apps (TOTP, RFC 6238), recovery codes, and with `passkeys` WebAuthn.

Rows are signed, and a use is counted in Postgres by a conditional update, so that no two processes take one
code. allauth.mfa does neither, so the libraries below it are used: cryptography here, fido2 in `passkeys`. Wrong codes
are counted per person, from all addresses.
"""

import base64
import hmac
import os
import secrets
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid4

from cryptography.hazmat.primitives.hashes import SHA1
from cryptography.hazmat.primitives.twofactor.totp import TOTP
from django.conf import settings
from django.contrib.auth.models import User
from django.db.models import QuerySet

from approvals import clock
from approvals.errors import UnknownFactor
from approvals.models import SecondFactor
from approvals.people import accounts, tokens
from approvals.signed import rows as signed_rows
from approvals.signed.audit import log_change
from runtime.errors import InvalidInput, KeyMissing
from runtime.keyring import sealing
from runtime.keyring.sealing import NotOurs

Kind = SecondFactor.FactorKind
DIGITS, PERIOD = 6, 30  # the values that every app knows
MAX_FACTORS = 10  # apps and passkeys of a person
MAX_NAME = 60
RECOVERY_CODES = 10
_WINDOW = (-1, 0, 1)  # periods by which the clock of a phone may differ
_NEW = "new"  # the location of a sealed key that waits for its first code


@dataclass(frozen=True, slots=True, kw_only=True)
class NewApp:
    """The key of an app that a person adds: as text, as a link for the app, and sealed for the session."""

    key: str
    link: str
    sealed: dict[str, str]


def list_factors(person: User) -> list[SecondFactor]:
    """Return the apps and passkeys of a person, the oldest first. One that no key of ours signed opens nothing."""
    return list(_select_current(person).exclude(kind=Kind.RECOVERY_CODE).order_by("created_at"))


def count_codes(person: User) -> int:
    """Return how many recovery codes a person has."""
    return _select_current(person, kind=Kind.RECOVERY_CODE).count()


def generate_app(username: str, sealed: dict[str, str] | None = None) -> NewApp:
    """Return a new key, or that of the session."""
    key = os.urandom(20) if sealed is None else _open(sealed, _NEW)
    return NewApp(
        key=base64.b32encode(key).decode(),
        link=_make_totp(key).get_provisioning_uri(username, urlsplit(settings.PUBLIC_URL).hostname),
        sealed=sealed or _seal(key, _NEW),
    )


def add_app(username: str, name: str, sealed: dict[str, str], code: str, *, keep: str) -> list[str]:
    """Add an app that shows this code, and return new recovery codes if it is the first factor.

    Raise InvalidInput naming `name` or `code`.
    """
    key = _open(sealed, _NEW)
    step = _find_step(key, code)
    if step is None:
        raise InvalidInput("code", "is not the one that the app shows now")
    row_id = uuid4()
    row = SecondFactor(id=row_id, kind=Kind.APP, secret=_seal(key, str(row_id)), counter=step)
    return add(username, name, row, keep=keep)


def add(username: str, name: str, row: SecondFactor, *, keep: str) -> list[str]:
    """Sign and add a factor, and end the person's sessions but for the key `keep`. Raise InvalidInput naming `name`."""
    row.name = name.strip()
    if not 1 <= len(row.name) <= MAX_NAME or not row.name.isprintable():
        raise InvalidInput("name", f"must have 1 to {MAX_NAME} visible characters")
    with accounts.lock_people():
        person = accounts.read_person(username)
        number = len(list_factors(person))
        if number >= MAX_FACTORS:
            raise InvalidInput("name", f"is one too many: at most {MAX_FACTORS} can be added")
        row.person, row.created_at = person, clock.read_time()
        signed_rows.add(row)
        accounts.end_sessions(person, keep=keep)
        log_change(username, f"added the second factor {row.name}, {_WORDS[Kind(row.kind)]}")
        return [] if number else _renew_codes(person)


def renew_codes(username: str, *, keep: str) -> list[str]:
    """Replace the recovery codes of a person, and return the new ones, which are shown once."""
    with accounts.lock_people():
        person = accounts.read_person(username)
        if not list_factors(person):
            raise UnknownFactor
        accounts.end_sessions(person, keep=keep)
        log_change(username, "made new recovery codes")
        return _renew_codes(person)


def remove(username: str, factor: UUID, *, keep: str) -> str:
    """End a factor of a person and their other sessions, with the last one the recovery codes. Return its name."""
    with accounts.lock_people():
        person = accounts.read_person(username)
        row = next((row for row in list_factors(person) if row.id == factor), None)
        if row is None:
            raise UnknownFactor
        _end_factors(person, pk=row.id)
        if not list_factors(person):
            _end_factors(person)
        accounts.end_sessions(person, keep=keep)
        log_change(username, f"removed the second factor {row.name}")
    return row.name


def reset(username: str, *, actor: str) -> None:
    """End all factors and sessions of a person who lost them.

    It needs no second admin: it opens no account. Who sets the password too becomes its giver, see `assignments`.
    """
    with accounts.lock_people():
        person = accounts.read_person(username)
        if _end_factors(person):
            accounts.end_sessions(person)
            log_change(actor, f"removed the second factors of {username}")


def use_code(person: User, code: str) -> str | None:
    """Return the kind of factor that this code is of, and use it up. None if it is wrong, or was used before."""
    code = "".join(code.split()).replace("-", "").lower()
    for row in list_factors(person):
        if row.kind != Kind.APP or not signed_rows.is_valid(row):
            continue
        try:
            step = _find_step(_open(row.secret, str(row.id)), code)
        except InvalidInput:  # its key cannot be opened: the other factors work
            continue
        if step is not None and use(row, step):
            return "totp"
    for row in _select_current(person, kind=Kind.RECOVERY_CODE):
        if tokens.is_secret(code, row.secret) and signed_rows.is_valid(row):
            return str(Kind.RECOVERY_CODE) if _end_factors(person, pk=row.pk) else None
    return None


def use(row: SecondFactor, counter: int) -> bool:
    """Note a use. Return False if the factor has ended, or was used with this counter or a later one."""
    rows = SecondFactor.objects.filter(pk=row.pk, ended_at=None)
    if counter or row.counter:  # many passkeys count nothing
        rows = rows.filter(counter__lt=counter)
    return bool(rows.update(counter=counter, used_at=clock.read_time()))


def _renew_codes(person: User) -> list[str]:
    _end_factors(person, kind=Kind.RECOVERY_CODE)
    codes = [secrets.token_hex(8) for _ in range(RECOVERY_CODES)]
    for code in codes:
        signed_rows.add(
            SecondFactor(
                person=person,
                kind=Kind.RECOVERY_CODE,
                secret=tokens.hash_secret(code),
                created_at=clock.read_time(),
            )
        )
    return ["-".join(code[n : n + 4] for n in range(0, 16, 4)) for code in codes]


def _select_current(person: User, **condition: Any) -> QuerySet[SecondFactor]:
    return SecondFactor.objects.filter(person=person, ended_at=None, **condition)


def _end_factors(person: User, **condition: Any) -> int:
    return _select_current(person, **condition).update(ended_at=clock.read_time())


def _find_step(key: bytes, code: str) -> int | None:
    """Return the period whose code this is, of those near now."""
    now = int(clock.read_time().timestamp()) // PERIOD
    for step in (now + difference for difference in _WINDOW):
        if hmac.compare_digest(_make_totp(key).generate(step * PERIOD), code.encode()):
            return step
    return None


def _make_totp(key: bytes) -> TOTP:
    return TOTP(key, DIGITS, SHA1(), PERIOD)  # noqa: S303 - the apps know no other


def _seal(key: bytes, owner: str) -> dict[str, str]:
    return sealing.seal(key.hex(), sealing.encode_location("second factor", owner))


def _open(sealed: dict[str, str], owner: str) -> bytes:
    try:
        return bytes.fromhex(
            sealing.unseal(sealed, sealing.encode_location("second factor", owner))
        )
    except (NotOurs, KeyMissing) as exc:
        raise InvalidInput(
            "code", "cannot be checked: the key of the app cannot be opened"
        ) from exc


_WORDS = {Kind.APP: "an authenticator app", Kind.PASSKEY: "a passkey"}
