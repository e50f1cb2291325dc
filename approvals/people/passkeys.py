"""Passkeys: WebAuthn (level 2), checked by the library fido2. The person must be verified by device or PIN.

A challenge is in the session and used once, and an answer counts only from a page of this site.
"""

import base64
import json
from typing import Any
from urllib.parse import urlsplit

from django.conf import settings
from django.contrib.auth.models import User
from fido2.server import Fido2Server
from fido2.webauthn import (
    AttestedCredentialData,
    AuthenticationResponse,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialUserEntity,
    UserVerificationRequirement,
)

from approvals.models import SecondFactor
from approvals.people import accounts, second_factors
from approvals.people.second_factors import Kind
from approvals.signed import rows as signed_rows
from runtime.errors import InvalidInput

_FAULTS = (ValueError, KeyError, TypeError, AttributeError)
Ceremony = tuple[dict[str, Any], dict[str, Any]]  # the options for the browser, and our state


def begin_adding(username: str) -> Ceremony:
    """Begin to add a passkey: none that the person has already."""
    person = accounts.read_person(username)
    user = PublicKeyCredentialUserEntity(
        id=str(person.pk).encode(), name=username, display_name=person.first_name or username
    )
    options, state = _build_server().register_begin(
        user, list(_read_credentials(person).values()), user_verification=_VERIFIED
    )
    return dict(options), state


def add(
    username: str, name: str, state: dict[str, Any] | None, answer: str, *, keep: str
) -> list[str]:
    """Add a passkey, and return what `second_factors.add` does. Raise InvalidInput naming `name` or `passkey`."""
    try:
        proof = _build_server().register_complete(state, json.loads(answer))
        credential = bytes(proof.credential_data or b"")
        AttestedCredentialData(credential)
    except _FAULTS as fault:
        raise InvalidInput("passkey", "was not made for this page. Try again") from fault
    secret = base64.b64encode(credential).decode()
    row = SecondFactor(kind=Kind.PASSKEY, secret=secret, counter=proof.counter)
    return second_factors.add(username, name, row, keep=keep)


def begin_check(person: User) -> Ceremony:
    """Begin to check one of a person's passkeys."""
    options, state = _build_server().authenticate_begin(
        list(_read_credentials(person).values()), user_verification=_VERIFIED
    )
    return dict(options), state


def check(person: User, state: dict[str, Any] | None, answer: str) -> str | None:
    """Return the kind of factor if a passkey of this person signed our challenge, else None."""
    credentials = _read_credentials(person)
    try:
        response = AuthenticationResponse.from_dict(json.loads(answer))
        used = _build_server().authenticate_complete(state, list(credentials.values()), response)
    except _FAULTS:
        return None
    row = next(row for row, credential in credentials.items() if credential == used)
    counter = response.response.authenticator_data.counter
    return str(Kind.PASSKEY) if second_factors.use(row, counter) else None


def _read_credentials(person: User) -> dict[SecondFactor, AttestedCredentialData]:
    """Return the passkeys of a person by their rows, without those that no key of ours signed."""
    return {
        row: AttestedCredentialData(base64.b64decode(row.secret))
        for row in second_factors.list_factors(person)
        if row.kind == Kind.PASSKEY and signed_rows.is_valid(row)
    }


def _build_server() -> Fido2Server:
    site = urlsplit(settings.PUBLIC_URL)
    return Fido2Server(
        PublicKeyCredentialRpEntity(name="Signoff", id=site.hostname),
        verify_origin=lambda origin: origin == f"{site.scheme}://{site.netloc}",
    )


_VERIFIED = UserVerificationRequirement.REQUIRED
