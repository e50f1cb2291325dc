"""Lets people in whom an OpenID provider identified, and says whose a Slack user is.

A signed assignment says whose a subject at an issuer is. For a stranger an account is made, without any right and
without a password, which names the provider as its giver. An account that was there before is never taken by its
address: its owner connects it, logged in and with the password. Mappings give rights for the groups of a claim.

A Slack user proves themselves with a link that Slack gives to them alone, the person with a login and the password.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta

from django.conf import settings
from django.contrib.auth.models import User
from django.core import signing
from django.db import transaction
from django.db.models import Q

from approvals import clock
from approvals.errors import LastAdmin, NotSignedIn
from approvals.models import SlackRequest
from approvals.people import accounts, mappings
from approvals.rights import assignments
from approvals.rules.identity_providers import Identity, IdentityProvider
from approvals.signed.audit import log_change
from runtime.errors import InvalidInput


@contextmanager
def lock_for_sign_in(identity: Identity) -> Iterator[User]:
    """Hold the lock on people while this person's session is made, so that nothing ended meanwhile lets them in.

    Raise NotSignedIn if the account is disabled, or another account has the address.
    """
    with accounts.lock_people():
        person = find_holder(identity) or _create_person(identity)
        if not person.is_active:
            raise NotSignedIn("This account is disabled.")
        if identity.provider.claim:
            member = mappings.Member(person=person, groups=dict.fromkeys(identity.groups))
            with suppress(LastAdmin), transaction.atomic():  # the last admin keeps all
                mappings.follow(identity.provider.giver, [member])
        yield person


def connect(username: str, identity: Identity) -> None:
    """Let a person sign in as this identity. Raise NotSignedIn if it is another person's."""
    with accounts.lock_people():
        person, holder = accounts.read_person(username), find_holder(identity)
        if holder is not None and holder.pk != person.pk:
            raise NotSignedIn("This sign-in belongs to another account.")
        if holder is None:
            assignments.grant(person, _name_right(identity), actor=username)
            log_change(username, f"connected {_name_right(identity)}")


def check_owner(username: str, identity: Identity) -> None:
    """Raise NotSignedIn unless the identity at the provider is this person's."""
    holder = find_holder(identity)
    if holder is None or holder.get_username() != username:
        raise NotSignedIn("This sign-in is not connected to your account.")


def disconnect_all(username: str, *, keep: str | None) -> None:
    """End a person's sign-ins at providers, and their sessions but for the key `keep`."""
    with accounts.lock_people():
        person = accounts.read_person(username)
        assignments.end_sign_ins(person, actor=username)
        accounts.end_sessions(person, keep=keep)
        log_change(username, "disconnected their sign-ins at providers")


def list_issuers(username: str) -> list[str]:
    """Return the issuers at which a person can sign in."""
    rows = assignments.sign_ins(accounts.read_person(username))
    return sorted({row.what.split(" ")[1] for row in rows})


def find_holder(identity: Identity) -> User | None:
    """Return whose identity this is; a disabled person has none.

    Two people cannot have it, so a row that says so lets neither in.
    """
    holders = assignments.list_holders(_name_right(identity))
    return holders[0] if len(holders) == 1 else None


def _name_right(identity: Identity) -> str:
    return f"{assignments.SIGN_IN}{identity.provider.issuer} {identity.subject}"


def _create_person(identity: Identity) -> User:
    """Make an account named by the verified address, else by the provider and the subject."""
    address = _try_check(accounts.check_mail, identity.address)
    is_known = Q(email__iexact=address) | Q(username__iexact=address)
    if address and User.objects.filter(is_known).exists():
        raise NotSignedIn(
            "An account with your address exists. Log in with its password, then connect it on the page Your account."
        )
    right, giver = _name_right(identity), identity.provider.giver
    digest = hashlib.sha256(right.encode()).hexdigest()[:16]
    person = accounts.create_person(
        username=_try_check(accounts.check_username, address)
        or f"{identity.provider.name}-{digest}",
        password=None,
        groups=[],
        actor=giver,
        full_name=_try_check(accounts.check_name, identity.full_name),
        email=address,
    )
    assignments.grant(person, right, actor=giver)
    return person


def _try_check(check: Callable[[str], str], text: str) -> str:
    try:
        return check(text)
    except InvalidInput:
        return ""


LINK_SECONDS = 600
USES_KEPT = timedelta(minutes=15)  # longer than a request of Slack or a link counts
_SLACK_ID = re.compile(r"[A-Z0-9]{1,32}")  # of a team or a user
_SLACK_SALT = "slack link"
_SLACK_ISSUER = "slack:"  # no provider's: those have https
_SLACK_OVER = "This link is over. Type /signoff link in Slack for a new one."


def make_slack_identity(team: object, user: object, name: str = "") -> Identity:
    """Return the identity of a user of a team. Raise ValueError if these are no ids."""
    if not _SLACK_ID.fullmatch(str(team)) or not _SLACK_ID.fullmatch(str(user)):
        raise ValueError("not the ids of a team and a user")
    provider = IdentityProvider(
        name="slack", label="Slack", issuer=f"{_SLACK_ISSUER}{team}", client="", secret=""
    )
    return Identity(provider=provider, subject=str(user), address="", full_name=name)


def make_slack_link(identity: Identity) -> str:
    """Return the address at which a logged-in person connects this Slack user, for ten minutes."""
    team = identity.provider.issuer.removeprefix(_SLACK_ISSUER)
    token = signing.dumps([team, identity.subject, identity.full_name], salt=_SLACK_SALT)
    return f"{settings.PUBLIC_URL}/slack/link/{token}/"


def read_slack_link(token: str) -> Identity:
    """Return whom a link connects. Raise NotSignedIn if it is over."""
    try:
        return make_slack_identity(*signing.loads(token, salt=_SLACK_SALT, max_age=LINK_SECONDS))
    except signing.BadSignature as exc:
        raise NotSignedIn(_SLACK_OVER) from exc


def connect_slack(username: str, token: str) -> None:
    """Connect a link's Slack user to a person, once. Raise NotSignedIn if it is over or the user another person's."""
    identity = read_slack_link(token)
    if not use_once(token.encode()):
        raise NotSignedIn(_SLACK_OVER)
    connect(username, identity)


def use_once(signed: bytes) -> bool:
    """Record the use of a signed text. Return False if it was used before."""
    at = clock.read_time()
    SlackRequest.objects.filter(at__lt=at - USES_KEPT).delete()
    digest = hashlib.sha256(signed).hexdigest()
    return SlackRequest.objects.get_or_create(digest=digest, defaults={"at": at})[1]


def find_slack_user(username: str) -> str | None:
    """Return the Slack user of a person, the one connected last; None without one."""
    rows = assignments.sign_ins(accounts.read_person(username))
    prefix = assignments.SIGN_IN + _SLACK_ISSUER
    linked = [row for row in rows if row.what.startswith(prefix)]
    return max(linked, key=lambda row: row.at).what.split(" ")[2] if linked else None
