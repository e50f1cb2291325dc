"""A proxy that loses answers: the request arrives, and the connection is closed without a word."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler
from threading import Lock
from urllib.parse import urlsplit

from tests.support.loopback import respond, serving


class LossyProxy:
    """Forwards to an installation. `lost` are the requests whose first answer did not come back."""

    def __init__(self, target: str, losing: str) -> None:
        self.target = urlsplit(target)
        self.lost: list[str] = []
        self._losing = re.compile(losing)
        self._lock = Lock()

    def loses(self, request: str) -> bool:
        """Tell whether to lose this answer, as the first that fits."""
        with self._lock:
            if self.lost or not self._losing.fullmatch(request):
                return False
            self.lost.append(request)
            return True


@contextmanager
def proxy(target: str, losing: str) -> Iterator[tuple[LossyProxy, str]]:
    """Run a proxy, with its address. `losing` matches the method and path of the request."""
    lossy = LossyProxy(target, losing)

    def forward(request: BaseHTTPRequestHandler, body: bytes) -> None:
        connection = HTTPConnection(lossy.target.hostname or "", lossy.target.port, timeout=60)
        connection.request(request.command, request.path, body or None, dict(request.headers))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if not lossy.loses(f"{request.command} {request.path}"):
            headers = ("Content-Type", "Content-Encoding")
            kept = {name: answer.headers[name] for name in headers if name in answer.headers}
            respond(request, answer.status, content, **kept)

    with serving(forward) as url:
        yield lossy, url
