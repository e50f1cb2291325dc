"""A small OAuth 2 token server with an API that takes its tokens, and a Vault, on loopback."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

from tests.support.loopback import respond, serving

CLIENT, SECRET = "signoff", "canary-client-secret"


class TokenServer:
    """Its tokens end when the test says so: `lapse` for access tokens, `withdraw` for a refresh token.

    If it `rotates`, it takes each refresh token once, and gives the next one with the access token.
    """

    def __init__(self) -> None:
        self.refresh = {"canary-refresh-1"}
        self.valid: set[str] = set()
        self.issued: list[str] = []
        self.grants: list[str] = []
        self.scopes: list[list[str]] = []
        self.lasts: Any = 3600
        self.said: tuple[int, bytes] | None = None  # the answer to each request
        self.calls: list[str] = []
        self.vault: Any = {"data": {"password": "canary-vault-password"}}
        self.url = ""
        self.rotates = False
        self.lock = threading.Lock()

    def lapse(self) -> None:
        self.valid.clear()

    def withdraw(self, *others: str) -> None:
        self.refresh = set(others)

    def token(self, form: dict[str, list[str]], client: str) -> tuple[int, dict[str, Any]]:
        (grant,) = form["grant_type"]
        self.grants.append(grant)
        self.scopes.append(form.get("scope", []))
        if client != f"{CLIENT}:{SECRET}":
            return 401, {"error": "invalid_client"}
        if grant == "refresh_token" and form["refresh_token"][0] not in self.refresh:
            return 400, {"error": "invalid_grant"}
        made = f"canary-access-{len(self.issued)}"
        self.issued.append(made)
        self.valid.add(made)
        answer: dict[str, Any] = {"access_token": made, "expires_in": self.lasts}
        if self.rotates and grant == "refresh_token":
            answer["refresh_token"] = f"canary-refresh-after-{len(self.issued)}"
            self.withdraw(answer["refresh_token"])
        return 200, answer


@contextmanager
def token_server() -> Iterator[TokenServer]:
    here = TokenServer()

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        document: dict[str, Any]
        if request.command == "POST":
            basic = request.headers["Authorization"].removeprefix("Basic ")
            with here.lock:
                status, document = here.token(
                    parse_qs(body.decode()), base64.b64decode(basic).decode()
                )
        elif request.path.startswith("/v1/"):
            known = request.headers["X-Vault-Token"] == "canary-vault-token"
            status, document = (200, {"data": here.vault}) if known else (403, {})
        else:
            token = request.headers["Authorization"].removeprefix("Bearer ")
            here.calls.append(token)
            status, document = 200 if token in here.valid else 401, {"got": token}
        respond(request, *(here.said or (status, json.dumps(document).encode())))

    with serving(answer) as here.url:
        yield here
