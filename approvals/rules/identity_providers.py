"""Defines an OpenID provider at which people sign in, and the Slack app in which they decide."""

from dataclasses import dataclass, field
from ipaddress import ip_address
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityProvider:
    """A provider by its name in the settings; with `client` and `secret` this installation is known there.

    `claim` names the groups of a person in its tokens; without it they are not read.
    """

    name: str
    label: str
    issuer: str
    client: str
    secret: str = field(repr=False)
    acr: str = ""  # what a step-up asks for: only a sign-in with one of these is strong
    asks_second: bool = False  # a second factor of ours follows a sign-in
    claim: str = ""

    @property
    def giver(self) -> str:
        """Name the provider as the giver of accounts. No username has a colon."""
        return f"oidc:{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Who the provider says has signed in, in which `groups`. `address` is empty unless the provider verified it."""

    provider: IdentityProvider
    subject: str
    address: str
    full_name: str
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackApp:
    """Its bot has the `token`; what Slack sends is signed with `secret`. With `decides` messages have buttons."""

    token: str = field(repr=False)
    secret: str = field(repr=False)
    url: str
    decides: bool


def is_confidential(url: str) -> bool:
    """Tell whether a secret may be sent to this web address: with TLS, or on this machine."""
    parts = urlsplit(url)
    if parts.scheme == "https":
        return bool(parts.hostname)
    try:
        return parts.scheme == "http" and ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return False
