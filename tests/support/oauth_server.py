"""A small OAuth 2 token server with an API that takes its tokens, and a Vault, on loopback."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

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

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            client = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
            with here.lock:
                answer = here.token(parse_qs(body), client)
            self._answer(*answer)

        def do_GET(self) -> None:
            if self.path.startswith("/v1/"):
                known = self.headers["X-Vault-Token"] == "canary-vault-token"
                self._answer(200 if known else 403, {"data": here.vault} if known else {})
                return
            token = self.headers["Authorization"].removeprefix("Bearer ")
            here.calls.append(token)
            self._answer(200 if token in here.valid else 401, {"got": token})

        def _answer(self, status: int, found: dict[str, Any]) -> None:
            status, body = here.said or (status, json.dumps(found).encode())
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    here.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
    thread.start()
    try:
        yield here
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
