"""A small OpenID provider on loopback. It signs in the person of `claims` without asking."""

import base64
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
import requests
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from django.conf import settings
from django.core.cache import cache
from django.test import override_settings

from approvals.rules.identity_providers import IdentityProvider
from tests.support.loopback import respond, serving

CLIENT, SECRET = "signoff", "canary-openid-secret"
HEADER = b"x"  # as a part of an endless answer: its head does not end


class OpenIDProvider:
    """A test changes its words: `claims` of both answers, `token` and `userinfo` of one, `key` that signs."""

    def __init__(self) -> None:
        self.issuer = ""
        self.published = generate_private_key(65537, 2048)
        self.reset()

    def reset(self) -> None:
        """Forget the changes of a test."""
        self.claims: dict[str, Any] = {
            "sub": "248289761001",
            "name": "Zoe Novak",
            "email": "Zoe@acme.example",
            "email_verified": True,
        }
        self.token: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.config: dict[str, Any] = {}
        self.alg = "RS256"
        self.key: Any = self.published
        self.codes: dict[str, dict[str, str]] = {}
        self.asked: list[str] = []
        self.endless: tuple[bytes, float] | None = None  # an answer of such parts and pauses
        self.parts = 0

    def discovery(self) -> dict[str, Any]:
        places = {
            "authorization_endpoint": "authorize",
            "token_endpoint": "token",
            "userinfo_endpoint": "userinfo",
            "jwks_uri": "keys",
            "end_session_endpoint": "logout",
        }
        found = {name: f"{self.issuer}/{place}" for name, place in places.items()}
        return {"issuer": self.issuer, **found, **self.config}

    def keys(self) -> dict[str, Any]:
        key = jwt.algorithms.RSAAlgorithm.to_jwk(self.published.public_key(), as_dict=True)
        return {"keys": [{**key, "kid": "1", "alg": "RS256", "use": "sig"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes back to."""
        assert query["code_challenge_method"] == "S256"
        assert query["client_id"] == CLIENT
        code = f"code-{len(self.asked)}"
        self.codes[code] = query
        return f"{query['redirect_uri']}?{urlencode({'code': code, 'state': query['state']})}"

    def exchange(self, form: dict[str, str], client: str) -> tuple[int, dict[str, Any]]:
        query = self.codes.pop(form["code"], None)  # it works once
        digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if query is None or query["code_challenge"] != challenge:
            return 400, {"error": "invalid_grant"}
        if client != f"{CLIENT}:{SECRET}":
            return 401, {"error": "invalid_client"}
        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT,
            "nonce": query["nonce"],
            "iat": now,
            "exp": now + 60,
            **self.claims,
            **self.token,
        }
        claims = {name: value for name, value in claims.items() if value is not None}
        token = jwt.encode(claims, self.key, self.alg, headers={"kid": "1"})
        return 200, {"access_token": "access", "token_type": "Bearer", "id_token": token}


@contextmanager
def openid_provider() -> Iterator[OpenIDProvider]:
    here = OpenIDProvider()

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        parts = urlsplit(request.path)
        here.asked.append(parts.path)
        sent = parse_qs(body.decode() or parts.query)
        fields = {name: values[0] for name, values in sent.items()}
        status, document, place = 200, dict[str, Any](), ""
        match parts.path:
            case "/authorize":
                place = here.authorize(fields)
            case "/logout":
                place = fields["post_logout_redirect_uri"]
            case "/token":
                basic = request.headers.get("Authorization", "").removeprefix("Basic ")
                client = base64.b64decode(basic).decode()
                client = client or f"{fields['client_id']}:{fields['client_secret']}"
                status, document = here.exchange(fields, client)
            case "/.well-known/openid-configuration":
                document = here.discovery()
            case "/keys":
                document = here.keys()
            case "/userinfo":
                document = {**here.claims, **here.userinfo}
            case _:
                status = 404
        if place:
            respond(request, 302, Location=place)
        elif here.endless is not None:
            go_on(request, *here.endless)
        else:
            respond(request, status, json.dumps(document).encode(), Content_Type="application/json")

    def go_on(request: BaseHTTPRequestHandler, part: bytes, pause: float) -> None:
        request.send_response(200)
        if part != HEADER:
            request.end_headers()
        request.flush_headers()
        with suppress(OSError):
            for _ in range(10_000 if pause == 0 else 200):  # 640 MB, or ten seconds
                request.wfile.write(part)
                here.parts += 1
                time.sleep(pause)

    with serving(answer) as here.issuer:
        yield here


def known_as(provider: OpenIDProvider, name: str = "acme") -> dict[str, IdentityProvider]:
    """The setting SIGNOFF_OIDC with this provider alone."""
    found = IdentityProvider(
        name=name, label="Acme", issuer=provider.issuer, client=CLIENT, secret=SECRET
    )
    return {name: found}


@contextmanager
def at_provider(provider: OpenIDProvider, site: str = "http://testserver") -> Iterator[None]:
    """Let people of this process's installation sign in at the provider, which is as it was started."""
    provider.reset()
    cache.clear()
    doors = [*settings.MIDDLEWARE, *settings.OIDC_MIDDLEWARE]
    apps = [*settings.INSTALLED_APPS, *settings.OIDC_APPS]
    known = known_as(provider)
    with (
        override_settings(MIDDLEWARE=doors, SIGNOFF_OIDC=known, PUBLIC_URL=site),
        override_settings(INSTALLED_APPS=apps),
    ):
        yield


def back_from(there: str) -> str:
    """Go to the provider, and return where it leads back to."""
    back = requests.get(there, allow_redirects=False, timeout=10)
    return back.headers["Location"].removeprefix("http://testserver")
