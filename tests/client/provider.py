"""The provider that `agentapprovalprotocol` tests its own integrations with, behind a port of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx
from agentapprovalprotocol.testing import TOKEN, FakeProvider

__all__ = ["TOKEN", "FakeProvider", "serve"]


@contextmanager
def serve(provider: FakeProvider) -> Iterator[str]:
    """Serve the provider where Signoff has its own; yield the address."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            url = f"https://provider.test{self.path.removeprefix('/api')}"
            response = provider.handle(
                httpx.Request(self.command, url, headers=dict(self.headers), content=content)
            )
            self.send_response(response.status_code)
            self.send_header("Content-Length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        do_GET = do_POST = do_DELETE = answer  # noqa: N815

        def log_message(self, format: str, *_: object) -> None:
            """Keep the output of tests clean."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Print nothing about clients that tests end while they wait."""

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
