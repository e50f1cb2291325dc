"""The provider's server: finds the agent by its instructions, plays its model, and fails on demand."""

import itertools
import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, cast

from agents.registry import Registry
from agents.sdk.spec import AgentSpec
from tests.support.provider.faults import SPOILERS, Fault, Weather
from tests.support.provider.protocol import (
    BadRequest,
    completion_of,
    conversation_of,
    events_of,
    instructions_of,
    message_of,
    said,
)

KEY = "the key of the loopback provider"
DRIP = 0.05  # seconds between two words of a trickle
MIN_WORDS = 20  # words after which a client has surely heard the first


class Provider:
    """Serves between enter and exit. `faults` happen once each, in order, to the requests they fit.

    `about` is a word of the conversations that get them. If no fault is due, `weather` decides about a request.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.faults: deque[Fault] = deque()
        self.about = ""
        self.weather: Weather | None = None
        self.root = "/v1"
        self.key = KEY
        self.streams = True  # false: answer in one piece even to a stream request
        self.refusal: tuple[int, Any] | None = None  # status, and document or page
        self.retry_after = 1.0  # seconds, sent with a refusal
        self.left = threading.Event()  # a client went away before its answer was complete
        self.speaking = threading.Event()  # a reply without end has begun
        self.bodies: list[dict[str, Any]] = []  # of every request that had the right key
        self.happened: list[Fault] = []
        self._lock = threading.Lock()
        self._leaving = threading.Event()
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.provider = self  # type: ignore[attr-defined]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self.root}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._leaving.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def answer(self, body: dict[str, Any]) -> tuple[Fault | None, dict[str, Any]]:
        """Return the model's reply and the fault on its way. Raise BadRequest."""
        agent = self.agent_of(instructions_of(body))
        if agent is None:
            raise BadRequest("no script has these instructions")
        assert agent.model is not None  # its script says what its model would
        message = message_of(agent.model(conversation_of(body), None))
        with self._lock:
            self.bodies.append(body)
            fault = self._next_fault(message) if self.about in json.dumps(body) else None
            if fault is None and self.weather is not None:
                fault = self.weather()
                self.happened += [fault] if fault else []
        if fault in SPOILERS:
            message = SPOILERS[fault](message)
        return fault, completion_of(message, body["model"])

    def agent_of(self, instructions: str) -> AgentSpec | None:
        agents = self.registry.agents.values()
        return next((one for one in agents if one.instructions == instructions), None)

    def wait(self, seconds: float) -> bool:
        """False when the server is leaving."""
        return not self._leaving.wait(seconds)

    def _next_fault(self, message: dict[str, Any]) -> Fault | None:
        if not self.faults or (self.faults[0] in SPOILERS and "tool_calls" not in message):
            return None
        fault = self.faults.popleft()
        self.happened.append(fault)
        return fault


@contextmanager
def serving(registry: Registry, settings: Any) -> Iterator[Provider]:
    """A provider that is the model of every agent while the block lasts."""
    with Provider(registry) as one:
        settings.SIGNOFF_MODEL = "openai:loopback"
        settings.OPENAI_BASE_URL = one.url
        settings.OPENAI_API_KEY = KEY
        yield one


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {self._provider.key}":
            self._refuse(401, f"Incorrect key: {self.headers['Authorization']}", "invalid_api_key")
            return
        if self.path != f"{self._provider.root}/chat/completions":
            self._refuse(404, "there is nothing here", "not_found")
            return
        if self._provider.refusal is not None:
            self._document(*self._provider.refusal)
            return
        try:
            fault, completion = self._provider.answer(body)
        except BadRequest as exc:
            self._refuse(400, str(exc), "bad_request")
            return
        try:
            self._send(fault, completion, streamed=body.get("stream", False))
        except ConnectionError:
            self._provider.left.set()

    def _send(self, fault: Fault | None, completion: dict[str, Any], *, streamed: bool) -> None:
        match fault:
            case Fault.RATE_LIMIT:
                self._refuse(429, "slow down", "rate_limit", self._retry_after())
            case Fault.SERVER_ERROR:
                self._refuse(500, "something broke", "server_error")
            case _ if not streamed or not self._provider.streams:
                self._document(200, completion)
            case _:
                self._stream(fault, completion)

    def _retry_after(self) -> dict[str, str]:
        """Return the header in whole seconds, or in milliseconds, as providers do, for less than a second."""
        after = self._provider.retry_after
        whole, parts = {"Retry-After": f"{after:.0f}"}, {"retry-after-ms": f"{after * 1000:g}"}
        return whole if after >= 1 else parts

    def _stream(self, fault: Fault | None, completion: dict[str, Any]) -> None:
        self._head(200, {"Transfer-Encoding": "chunked"}, kind="text/event-stream")
        events = events_of(completion)
        half = events[: len(events) // 2]
        self.close_connection = fault is not None and fault not in SPOILERS
        match fault:
            case Fault.CUT:
                self._pieces(half)
            case Fault.SHORT:
                self._pieces([*half, b""])
            case Fault.TRICKLE:
                self._pieces(half)
                self._trickle(completion)
            case Fault.HALF_OPEN:
                self._pieces([*half, said(completion, "and then")])
                self._hold()
            case Fault.MALFORMED_JSON:
                self._pieces([*half, events[-3][:-20] + b"\n\n", b""])
            case _:
                self._pieces([*events, b""])

    def _pieces(self, pieces: Iterable[bytes]) -> None:
        """Send chunks of the body; an empty one ends it."""
        for piece in pieces:
            self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def _trickle(self, completion: dict[str, Any]) -> None:
        """This never ends by itself, and never falls silent."""
        for number in itertools.count():
            if not self._provider.wait(DRIP):
                return
            self._pieces([said(completion, "drip ")])
            if number == MIN_WORDS:
                self._provider.speaking.set()

    def _hold(self) -> None:
        """Wait until the client disconnects: it sends nothing more, so a read returns only at its end."""
        self._provider.speaking.set()
        self.connection.settimeout(DRIP)
        while self._provider.wait(0):
            with suppress(TimeoutError):
                if not self.connection.recv(1):
                    raise ConnectionError

    def _refuse(
        self, status: int, text: str, code: str, headers: dict[str, str] | None = None
    ) -> None:
        error = {"message": text, "type": code, "code": code}
        self._document(status, {"error": error}, headers)

    def _document(self, status: int, said: Any, headers: dict[str, str] | None = None) -> None:
        page = isinstance(said, str)
        document = (said if page else json.dumps(said)).encode()
        length = {"Content-Length": str(len(document)), **(headers or {})}
        self._head(status, length, "text/html" if page else "application/json")
        self.wfile.write(document)

    def _head(self, status: int, headers: dict[str, str], kind: str = "application/json") -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    @property
    def _provider(self) -> Provider:
        return cast("Provider", self.server.provider)  # type: ignore[attr-defined]

    def log_message(self, format: str, *args: Any) -> None:
        """Tests look at `bodies` instead."""
