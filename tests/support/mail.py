"""A real mail server on loopback, in a thread of the test process."""

import asyncio
import socket
from collections.abc import Iterator
from dataclasses import dataclass, field
from email import message_from_bytes
from email.message import Message
from threading import Event
from typing import Any

import pytest
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import Envelope
from pytest_django import Settings


@dataclass(slots=True)
class Sink:
    """A mail server that keeps its mails. `answers` are its replies to the end of the next mails.

    With `cut` it accepts the mail and then drops the connection.
    """

    mails: list[Message] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)
    cut: bool = False
    slow: str = ""  # mails to this address wait for `go`
    go: Event = field(default_factory=Event)
    hanging: int = 0

    async def handle_RCPT(  # noqa: N802
        self, _server: Any, _session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address == self.slow:
            self.hanging += 1
            await asyncio.to_thread(self.go.wait)
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, _session: Any, envelope: Envelope) -> str:  # noqa: N802
        if self.answers:
            return self.answers.pop(0)
        assert isinstance(envelope.content, bytes)
        self.mails.append(message_from_bytes(envelope.content))
        if self.cut:
            server.transport.abort()
        return "250 OK"


@pytest.fixture
def sink(settings: Settings) -> Iterator[Sink]:
    sink = Sink()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]  # aiosmtpd cannot be given port 0
    controller = Controller(sink, hostname="127.0.0.1", port=port)
    controller.start()
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_PORT = port
    settings.DEFAULT_FROM_EMAIL = "Signoff <desk@signoff.example>"
    yield sink
    sink.go.set()
    controller.stop()
