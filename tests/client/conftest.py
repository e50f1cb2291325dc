"""The application behind a real server, and clients of its people."""

import threading
from collections.abc import Iterator

import pytest
from django.contrib.auth.models import User
from pytest_django.live_server_helper import LiveServer

from approvals.people import tokens
from approvals.rights.principals import ALL_SCOPES
from signoff_client import Signoff
from tests.client.terminal import Terminal
from tests.support.seeds import Cast, object_of
from tests.support.seeds import published as publish


@pytest.fixture
def served(live_server: LiveServer, cast: Cast) -> Iterator[str]:
    """The address of the application; hr_onboarding is published. Afterwards, wait until it has answered all."""
    kinds = {"full_name": "string", "username": "string", "security_level": "integer"}
    schema = object_of(**{name: {"type": kind} for name, kind in kinds.items()})
    publish(input_schema=schema, tools=[], subagents=[], steps=None)
    yield live_server.url
    for thread in threading.enumerate():
        if "process_request_thread" in thread.name:
            thread.join(60)


def token_of(owner: User) -> str:
    """Return a new token of this person with all scopes."""
    _, secret = tokens.create(owner, ALL_SCOPES)
    return secret


@pytest.fixture
def ada(served: str, cast: Cast) -> Iterator[Signoff]:
    with Signoff(served, token_of(cast.ada)) as signoff:
        yield signoff


@pytest.fixture
def bea(served: str, cast: Cast) -> Iterator[Signoff]:
    with Signoff(served, token_of(cast.bea)) as signoff:
        yield signoff


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(patch=monkeypatch, output=capfd)
