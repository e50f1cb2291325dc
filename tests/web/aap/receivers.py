"""Receivers of webhooks on this machine: that of the package `agentapprovalprotocol`, and ones that answer anything."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from ssl import SSLContext
from typing import Any
from uuid import uuid4

from agentapprovalprotocol.receiver import Receiver, new_secret, verify

from approvals import clock
from approvals.decisions.open_requests import ResolvedRequests
from approvals.models import OutboxMessage
from approvals.outbox import messages
from approvals.outbox.messages import Sender
from approvals.people.instances import RESOLVED
from tests.support import loopback
from tests.support.loopback import Answerer, respond


class Hook:
    """A receiver with its registration. `events` are the resolved requests that it acknowledged, as they came."""

    def __init__(self) -> None:
        self.url = ""
        self.secret, self.registration = new_secret(), str(uuid4())
        self.receiver = Receiver(resumers={}, secret=self.secret, registration_id=self.registration)
        self.events: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.verifications = 0
        self.statuses: list[int] = []  # instead of the receiver's own, for the next ones

    @property
    def delivery(self) -> dict[str, str]:
        return {
            "type": "webhook",
            "url": self.url,
            "registration_id": self.registration,
            "signing_secret": self.secret,
        }

    def take(self, request: BaseHTTPRequestHandler, body: bytes) -> None:
        headers = dict(request.headers.items())
        status, answer = asyncio.run(self.receiver.handle(headers, body))
        self.verifications += status == 200
        if status == 204:
            self.headers.append(headers)
            self.events.append(verify(self.secret, headers, body))
            status = self.statuses.pop(0) if self.statuses else status
        respond(request, status, answer)


@contextmanager
def serving(answer: Answerer, *, tls: SSLContext | None = None) -> Iterator[str]:
    """Yield the URL of a webhook on this machine."""
    with loopback.serving(answer, tls=tls) as url:
        yield f"{url}/hook?x=1"


@contextmanager
def listening() -> Iterator[Hook]:
    """A receiver of the package that is serving."""
    hook = Hook()
    with serving(hook.take) as hook.url:
        yield hook


def send_due() -> None:
    """Make one attempt at each message that is due, as a sweeper does."""
    sender = Sender({RESOLVED: ResolvedRequests()})
    while (message := messages.claim()) is not None:
        sender.send_one(message)


def pass_time() -> None:
    """Make every message due that waits for another attempt or its request, or that a sender left."""
    at = clock.read_time()
    OutboxMessage.objects.filter(ended_at=None).update(next_at=at, leased_until=None)
