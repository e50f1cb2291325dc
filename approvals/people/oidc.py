"""Talks to OpenID providers with allauth: discovery, PKCE, and the tokens that a provider answers with.

Nothing of what allauth would do with a login is used: it would link accounts by their address and let its tables say
who a person is. Here a signed assignment says that. An ID token counts only with a signature by a key of the
provider, for this installation, and for the browser in which the login began.
"""

import hmac
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import urlencode

import jwt
import requests
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import jwtkit, statekit
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.base import AuthProcess
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.core.cache import cache
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from urllib3.exceptions import HTTPError

from approvals.errors import NotSignedIn
from approvals.rules.identity_providers import Identity, IdentityProvider, is_confidential
from approvals.rules.policy import STEP_UP_TIME
from runtime.network import call_within

ALGORITHMS = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
REQUIRED = ("iss", "aud", "exp", "iat", "sub", "nonce")
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
LAST_SECOND = 2**33  # of a time that counts
MAX_SUBJECT = 255  # OpenID Connect Core 1.0, section 2
DISCOVERY_SECONDS = 600
FAILURE_SECONDS = 30  # in which a provider that did not answer is not asked again
ANSWER_SECONDS = 5.0
MAX_ANSWER = 1024 * 1024  # bytes
MAX_GROUPS = 1000  # of a person, in a claim
_FAULTS = (
    *(OAuth2Error, OSError, HTTPError, jwt.PyJWTError),
    *(KeyError, TypeError, ValueError, AttributeError),
)


class ProviderRequests(DefaultSocialAccountAdapter):
    """allauth's settings: it follows no redirect of a provider, which could lead to an address inside."""

    def get_requests_session(self) -> requests.Session:
        """Return a session without redirects, whose answers are short and come in time, to the last byte."""
        session: requests.Session = super().get_requests_session()
        session.max_redirects = 0
        session.stream = True
        session.hooks["response"].append(_read)
        ask = session.request
        session.request = lambda *args, **options: call_within(  # type: ignore[method-assign]
            ANSWER_SECONDS, partial(ask, *args, **options)
        )
        return session


def _read(response: requests.Response, **_: Any) -> None:
    """Read an answer that was begun."""
    with response:
        content = response.raw.read(MAX_ANSWER + 1, decode_content=True)
    if len(content) > MAX_ANSWER:
        raise OAuth2Error("the answer is too long")
    response._content = content  # noqa: SLF001 - as requests does itself, without a limit


class _Endpoints(OpenIDConnectOAuth2Adapter):
    """The endpoints of one provider."""

    def __init__(self, request: HttpRequest, provider: IdentityProvider) -> None:
        super().__init__(request, provider.name)
        self.provider = provider

    def get_provider(self) -> "_Provider":
        address = self.provider.issuer.rstrip("/")
        app = SocialApp(
            provider=OpenIDConnectProvider.id,
            provider_id=self.provider.name,
            name=self.provider.label,
            client_id=self.provider.client,
            secret=self.provider.secret,
            settings={"server_url": address, "oauth_pkce_enabled": True},
        )
        return _Provider(self.request, app=app)

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        return f"{settings.PUBLIC_URL}{reverse('oidc_callback', args=[self.provider.name])}"

    @property
    def openid_config(self) -> dict[str, Any]:
        """The discovered endpoints, kept for a while, so strangers cannot make this process ask each time.

        They are empty for a while after they could not be read: who comes then does not wait for the provider.
        """
        key = f"oidc-{self.provider.name}"
        config: dict[str, Any] | None = cache.get(key)
        if config is None:
            try:
                config = dict(super().openid_config)
                if config["issuer"] != self.provider.issuer:
                    raise OAuth2Error("the provider names another issuer")
                if not all(is_confidential(config[name]) for name in ENDPOINTS):
                    raise OAuth2Error("an endpoint has no https")
            except _FAULTS:
                cache.set(key, {}, FAILURE_SECONDS)
                raise
            cache.set(key, config, DISCOVERY_SECONDS)
        return config


class _Provider(OpenIDConnectProvider):
    def get_oauth2_adapter(self, request: HttpRequest) -> _Endpoints:
        return _Endpoints(request, settings.SIGNOFF_OIDC[self.app.provider_id])


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedIn:
    """What a provider answered. `page` is where the person wanted to go; `token` is for the log-out there.

    `proof` says how they logged in, as in `Actor`. With `step_up` a logged-in person confirms that it is them.
    """

    identity: Identity
    page: str
    token: str
    proof: dict[str, str]
    step_up: bool


def begin(
    request: HttpRequest, provider: IdentityProvider, page: str, *, step_up: bool = False
) -> HttpResponse:
    """Lead a browser to the provider, for a fresh log-in there with `step_up`. Raise NotSignedIn if it is down."""
    nonce = secrets.token_urlsafe(32)
    parameters = {"nonce": nonce}
    if step_up:
        parameters["max_age"] = str(int(STEP_UP_TIME.total_seconds()))
        if provider.acr:
            parameters["acr_values"] = provider.acr
    state = {"next_url": page, "auth_params": parameters, "nonce": nonce, "step_up": step_up}
    client = _Endpoints(request, provider).get_provider()
    try:
        there: HttpResponse = client.redirect(request, AuthProcess.LOGIN, **state)
        return there
    except _FAULTS as fault:
        raise NotSignedIn(f"{provider.label} cannot be reached now. Try again later.") from fault


def finish(request: HttpRequest, provider: IdentityProvider) -> SignedIn:
    """Return who came back from the provider. Raise NotSignedIn."""
    state_id = request.GET.get("state", "")
    state = statekit.unstash_state(request, provider_id=provider.name, state_id=state_id)
    if state is None:
        raise NotSignedIn("This sign-in is over, or began in another browser. Start again.")
    if "code" not in request.GET or "error" in request.GET:
        raise NotSignedIn(f"{provider.label} did not sign you in.")
    try:
        return _verify_answer(request, provider, state)
    except _FAULTS as fault:
        raise NotSignedIn(f"The answer of {provider.label} is not valid. Start again.") from fault


def find_logout_address(request: HttpRequest, provider: IdentityProvider, token: str) -> str | None:
    """Return where the provider ends its own session; None if it cannot, or cannot be reached."""
    try:
        address = _Endpoints(request, provider).openid_config.get("end_session_endpoint", "")
    except _FAULTS:
        return None
    if not is_confidential(address):
        return None
    back = f"{settings.PUBLIC_URL}{reverse('login')}"
    query = {"id_token_hint": token, "client_id": provider.client, "post_logout_redirect_uri": back}
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def _verify_answer(
    request: HttpRequest, provider: IdentityProvider, state: dict[str, Any]
) -> SignedIn:
    protocol = _Endpoints(request, provider)
    app = protocol.get_provider().app
    answer = protocol.get_access_token_data(
        request,
        app,
        protocol.get_client(request, app),
        pkce_code_verifier=state["pkce_code_verifier"],
    )
    token = str(answer["id_token"])
    claims = _verify_claims(protocol, token)
    if not hmac.compare_digest(str(claims["nonce"]).encode(), state["nonce"].encode()):
        raise OAuth2Error("the token is for another login")
    # The time is there if the provider says it, and the log-in is as strong as asked.
    proof, acr, at = {"how": provider.giver}, claims.get("acr"), claims.get("auth_time")
    if isinstance(acr, str) and len(acr) <= MAX_SUBJECT:
        proof["acr"] = acr
    is_strong = not provider.acr or proof.get("acr") in provider.acr.split()
    if type(at) is int and 0 < at < LAST_SECOND and is_strong:
        proof["at"] = datetime.fromtimestamp(at, UTC).isoformat()
    if "userinfo_endpoint" in protocol.openid_config:
        details = protocol._fetch_user_info(answer["access_token"])  # noqa: SLF001 - it has no public name
        if details["sub"] != claims["sub"]:
            raise OAuth2Error("the details are another subject's")
        claims = {**details, **claims}
    verified = claims.get("email_verified") is True
    identity = Identity(
        provider=provider,
        subject=claims["sub"],
        address=str(claims.get("email", "")).lower() if verified else "",
        full_name=str(claims.get("name", "")),
        groups=_read_groups(provider, claims),
    )
    return SignedIn(
        identity=identity,
        page=state.get("next", ""),
        token=token,
        proof=proof,
        step_up=bool(state.get("step_up")),
    )


def _read_groups(provider: IdentityProvider, claims: dict[str, Any]) -> tuple[str, ...]:
    """Return the groups of the claim: none without it, and one of a text. Raise NotSignedIn if they cannot be read.

    Else a person would lose rights without a word. Microsoft Entra refers elsewhere for more than 200 groups.
    """
    groups = claims.get(provider.claim) or []
    groups = [groups] if isinstance(groups, str) else groups
    is_elsewhere = provider.claim in (claims.get("_claim_names") or ())
    if not isinstance(groups, list) or len(groups) > MAX_GROUPS or is_elsewhere:
        raise NotSignedIn(f"{provider.label} does not list your groups. Ask an admin.")
    return tuple(name for name in groups if isinstance(name, str))


def _verify_claims(protocol: _Endpoints, token: str) -> dict[str, Any]:
    """Return the claims of an ID token that a key of the provider signed, for this installation alone."""
    if jwt.get_unverified_header(token)["alg"] not in ALGORITHMS:
        raise OAuth2Error("the token is not signed with a public key")
    provider = protocol.provider
    claims: dict[str, Any] = jwtkit.verify_and_decode(
        credential=token,
        keys_url=protocol.openid_config["jwks_uri"],
        issuer=provider.issuer,
        audience=provider.client,
        lookup_kid=jwtkit.lookup_kid_jwk,
    )
    if any(claims.get(name) is None for name in REQUIRED):
        raise OAuth2Error("the token lacks a claim")
    if claims["aud"] not in (provider.client, [provider.client]):
        raise OAuth2Error("the token is for others too")
    if not 0 < len(claims["sub"]) <= MAX_SUBJECT or not claims["sub"].isprintable():
        raise OAuth2Error("the token has no subject")
    return claims
