"""The provider's server: plays the model of whichever agent's instructions it is given, and breaks on demand."""

import json
import threading
from collections import deque
from collections.abc import Iterable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self, cast

from agents.registry import Registry
from tests.provider.faults import SPOILERS, Fault
from tests.provider.protocol import (
    BadRequest,
    completion_of,
    conversation_of,
    instructions_of,
    message_of,
)

KEY = "the key of the loopback provider"
RETRY_AFTER = "1"
DRIP = 0.05  # seconds between two bytes of a trickle


class Provider:
    """Serves between enter and exit. `faults` happen once each, in order, to the requests they fit.

    `about` is a word of the conversations that are to suffer them.
    """

    def __init__(self, registry: Registry, faults: Iterable[Fault] = (), about: str = "") -> None:
        self.registry = registry
        self.faults = deque(faults)
        self.about = about
        self.bodies: list[dict[str, Any]] = []  # of every request that had the right key
        self.happened: list[Fault] = []
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        self._server.daemon_threads = True
        self._server.provider = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/v1"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, _: type[BaseException] | None, _exc: BaseException | None, _tb: TracebackType | None
    ) -> None:
        self._leaving.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, body: dict[str, Any]) -> tuple[Fault | None, dict[str, Any]]:
        """What the model says, and what goes wrong on the way. Raises BadRequest."""
        wanted = instructions_of(body)
        agent = next((a for a in self.registry.agents.values() if a.instructions == wanted), None)
        if agent is None:
            raise BadRequest("no script has these instructions")
        message = message_of(agent.model(conversation_of(body), None))
        with self._lock:
            self.bodies.append(body)
            fault = self._next_fault(message) if self.about in json.dumps(body) else None
        if fault in SPOILERS:
            message = SPOILERS[fault](message)
        return fault, completion_of(message, body["model"])

    def wait(self, seconds: float) -> bool:
        """False when the server is leaving."""
        return not self._leaving.wait(seconds)

    def _next_fault(self, message: dict[str, Any]) -> Fault | None:
        if not self.faults or (self.faults[0] in SPOILERS and "tool_calls" not in message):
            return None
        fault = self.faults.popleft()
        self.happened.append(fault)
        return fault


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {KEY}":
            self._refuse(401, f"Incorrect key: {self.headers['Authorization']}", "invalid_api_key")
            return
        if self.path != "/v1/chat/completions":
            self._refuse(404, "there is nothing here", "not_found")
            return
        try:
            fault, completion = self._provider.answer(body)
        except BadRequest as exc:
            self._refuse(400, str(exc), "bad_request")
            return
        with suppress(ConnectionError):  # the client may have given up
            self._send(fault, json.dumps(completion).encode())

    def _send(self, fault: Fault | None, document: bytes) -> None:
        match fault:
            case Fault.RATE_LIMIT:
                self._refuse(429, "slow down", "rate_limit", {"Retry-After": RETRY_AFTER})
            case Fault.SERVER_ERROR:
                self._refuse(500, "something broke", "server_error")
            case Fault.CUT:
                self._head(200, len(document))
                self.wfile.write(document[: len(document) // 2])
                self.close_connection = True
            case Fault.TRICKLE:
                self._trickle(document)
            case Fault.MALFORMED_JSON:
                half = document[: len(document) // 2]
                self._head(200, len(half))
                self.wfile.write(half)
            case _:
                self._head(200, len(document))
                self.wfile.write(document)

    def _trickle(self, document: bytes) -> None:
        """Spaces before a document are JSON too: this never ends by itself, and never falls silent."""
        self._head(200, 10**6 + len(document))
        self.close_connection = True
        while self._provider.wait(DRIP):
            self.wfile.write(b" ")
            self.wfile.flush()

    def _refuse(
        self, status: int, text: str, code: str, headers: dict[str, str] | None = None
    ) -> None:
        document = json.dumps({"error": {"message": text, "type": code, "code": code}}).encode()
        self._head(status, len(document), headers or {})
        self.wfile.write(document)

    def _head(self, status: int, length: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(length))
        self.end_headers()

    @property
    def _provider(self) -> Provider:
        return cast("Provider", self.server.provider)  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at `bodies` instead."""
