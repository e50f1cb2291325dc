"""Lets people in whom an OpenID provider identified.

A signed assignment says whose a subject at an issuer is. For a stranger an account is made, without any right and
without a password, which names the provider as its giver. An account that was there before is never taken by its
address: its owner connects it, logged in and with the password. Mappings give rights for the groups of a claim.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import Q

from approvals.errors import LastAdmin, NotSignedIn
from approvals.models import Assignment
from approvals.people import accounts, mappings
from approvals.rights import assignments
from approvals.rules.identity_providers import Identity
from approvals.signed.audit import log_change
from runtime.errors import InvalidInput


@contextmanager
def signing_in(identity: Identity) -> Iterator[User]:
    """Hold the lock on people while this person's session is made, so that nothing ended meanwhile lets them in.

    Raise NotSignedIn if the account is disabled, or another account has the address.
    """
    with accounts.changing():
        person = find_holder(identity) or _new_person(identity)
        if not person.is_active:
            raise NotSignedIn("This account is disabled.")
        if identity.provider.claim:
            member = mappings.Member(person=person, values=identity.groups)
            with suppress(LastAdmin), transaction.atomic():  # the last admin keeps all
                mappings.follow(identity.provider.giver, [member])
        yield person


def connect(username: str, identity: Identity) -> None:
    """Let a person sign in as this identity. Raise NotSignedIn if it is another person's."""
    with accounts.changing():
        person, holder = accounts.read_person(username), find_holder(identity)
        if holder is not None and holder.pk != person.pk:
            raise NotSignedIn("This sign-in belongs to another account.")
        if holder is None:
            assignments.grant(person, _right(identity), actor=username)
            log_change(username, f"connected {_right(identity)}")


def check_owner(username: str, identity: Identity) -> None:
    """Raise NotSignedIn unless the identity at the provider is this person's."""
    holder = find_holder(identity)
    if holder is None or holder.get_username() != username:
        raise NotSignedIn("This sign-in is not connected to your account.")


def disconnect_all(username: str, *, keep: str | None) -> None:
    """End a person's sign-ins at providers, and their sessions but for the key `keep`."""
    with accounts.changing():
        person = accounts.read_person(username)
        assignments.end_sign_ins(person, actor=username)
        accounts.end_sessions(person, keep=keep)
        log_change(username, "disconnected their sign-ins at providers")


def connected(username: str) -> list[str]:
    """Return the issuers at which a person can sign in."""
    rows = assignments.sign_ins(accounts.read_person(username))
    return sorted({row.what.split(" ")[1] for row in rows})


def find_holder(identity: Identity) -> User | None:
    """Return whose identity this is. Two people cannot have it, so a row that says so lets neither in."""
    rows = Assignment.objects.filter(what=_right(identity)).select_related("person")
    newest = rows.order_by("person", "-seq").distinct("person")
    holders = [row.person for row in newest if assignments.is_of(row, row.person)]
    return holders[0] if len(holders) == 1 else None


def _right(identity: Identity) -> str:
    return f"{assignments.SIGN_IN}{identity.provider.issuer} {identity.subject}"


def _new_person(identity: Identity) -> User:
    """Make an account named by the verified address, else by the provider and the subject."""
    address = identity.address
    is_known = Q(email__iexact=address) | Q(username__iexact=address)
    if address and User.objects.filter(is_known).exists():
        raise NotSignedIn(
            "An account with your address exists. Log in with its password, then connect it on the page Your account."
        )
    right, giver = _right(identity), identity.provider.giver
    try:
        accounts.check_username(identity.address)
        username = identity.address
    except InvalidInput:
        username = f"{identity.provider.name}-{hashlib.sha256(right.encode()).hexdigest()[:16]}"
    try:
        full_name = accounts.checked_name(identity.full_name)
    except InvalidInput:
        full_name = ""
    person = accounts.create_person(
        username=username,
        password=None,
        groups=[],
        actor=giver,
        full_name=full_name,
        email=address,
    )
    assignments.grant(person, right, actor=giver)
    return person
