"""A proxy that loses answers: the request arrives, and the connection is closed without a word."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import urlsplit


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

    class Handler(BaseHTTPRequestHandler):
        def forward(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            connection = HTTPConnection(lossy.target.hostname or "", lossy.target.port, timeout=60)
            connection.request(self.command, self.path, body or None, dict(self.headers))
            answer = connection.getresponse()
            content = answer.read()
            connection.close()
            if lossy.loses(f"{self.command} {self.path}"):
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name in ("Content-Type", "Content-Encoding"):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_POST = do_DELETE = forward  # noqa: N815 - the names of http.server

        def log_message(self, format: str, *arguments: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield lossy, f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
