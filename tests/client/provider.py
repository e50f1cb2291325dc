"""The provider that `agentapprovalprotocol` tests its own integrations with, behind a port of this machine."""

from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

import httpx
from agentapprovalprotocol.testing import TOKEN, FakeProvider

from tests.support.loopback import respond, serving

__all__ = ["TOKEN", "FakeProvider", "serve"]


@contextmanager
def serve(provider: FakeProvider) -> Iterator[str]:
    """Serve the provider where Signoff has its own; yield the address."""

    def answer(request: BaseHTTPRequestHandler, body: bytes) -> None:
        url = f"https://provider.test{request.path.removeprefix('/api')}"
        headers = dict(request.headers)
        response = provider.handle(
            httpx.Request(request.command, url, headers=headers, content=body)
        )
        respond(request, response.status_code, response.content)

    with serving(answer) as url:
        yield url
