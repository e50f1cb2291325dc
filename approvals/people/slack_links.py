"""Says whose a Slack user is: a signed assignment, as for a sign-in at a provider.

The Slack user proves themselves with a link that Slack gives to them alone, the person with a login and the password.
An address decides nothing. The link ends with the account's sign-ins: by its owner, or when an admin disables it.
"""

import re

from django.conf import settings
from django.core import signing

from approvals.errors import NotSignedIn
from approvals.outbox import slack
from approvals.people import accounts, sign_in
from approvals.rights import assignments
from approvals.rules.identity_providers import Identity, IdentityProvider

LINK_SECONDS = 600
_ID = re.compile(r"[A-Z0-9]{1,32}")  # of a team or a user
_SALT = "slack link"
_ISSUER = "slack:"  # no provider's: those have https
_OVER = "This link is over. Type /signoff link in Slack for a new one."


def identity_of(team: object, user: object, name: str = "") -> Identity:
    """Return the identity of a user of a team. Raise ValueError if these are no ids."""
    if not _ID.fullmatch(str(team)) or not _ID.fullmatch(str(user)):
        raise ValueError("not the ids of a team and a user")
    provider = IdentityProvider(
        name="slack", label="Slack", issuer=f"{_ISSUER}{team}", client="", secret=""
    )
    return Identity(provider=provider, subject=str(user), address="", full_name=name)


def make_link(identity: Identity) -> str:
    """Return the address at which a logged-in person connects this Slack user, for ten minutes."""
    team = identity.provider.issuer.removeprefix(_ISSUER)
    token = signing.dumps([team, identity.subject, identity.full_name], salt=_SALT)
    return f"{settings.PUBLIC_URL}/slack/link/{token}/"


def read_link(token: str) -> Identity:
    """Return whom a link connects. Raise NotSignedIn if it is over."""
    try:
        return identity_of(*signing.loads(token, salt=_SALT, max_age=LINK_SECONDS))
    except signing.BadSignature as exc:
        raise NotSignedIn(_OVER) from exc


def connect(username: str, token: str) -> None:
    """Connect a link's Slack user to a person, once. Raise NotSignedIn if it is over or the user another person's."""
    identity = read_link(token)
    if not slack.use_once(token):
        raise NotSignedIn(_OVER)
    sign_in.connect(username, identity)


def person_of(identity: Identity) -> str | None:
    """Return who a Slack user is here; None for a stranger. A person who is disabled loses the link."""
    person = sign_in.find_holder(identity)
    return None if person is None else person.get_username()


def user_of(username: str) -> str | None:
    """Return the Slack user of a person, the one connected last; None without one."""
    rows = assignments.sign_ins(accounts.read_person(username))
    prefix = assignments.SIGN_IN + _ISSUER
    linked = [row for row in rows if row.what.startswith(prefix)]
    return max(linked, key=lambda row: row.at).what.split(" ")[2] if linked else None
