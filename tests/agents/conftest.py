"""A real directory on loopback, in a thread of the test process, and the HR agents."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from pytest_django import Settings
from scim2_models import ScimProvider
from scim2_server.memory import InMemoryStorage
from scim2_server.testserver.application import BearerTokenApplication
from scim2_server.utils import load_default_provider

from agents.registry import Registry, load
from agents.sdk import ToolContext
from tests.support.books import ledger, made_books  # noqa: F401 - fixtures
from tests.support.engine import Engine, engine_of
from tests.support.mail import sink  # noqa: F401 - a fixture
from tests.support.specs import RUN

TOKEN = "let me in"


@dataclass(slots=True, kw_only=True)
class Directory:
    """The directory's own record of its requests."""

    storage: InMemoryStorage
    requests: list[str]

    def accounts(self) -> list[Any]:
        return list(self.storage.resources)


@cache
def _schemas() -> ScimProvider:
    """What the directory serves. Reading it takes most of a second."""
    return load_default_provider()


@pytest.fixture
def directory(settings: Settings) -> Iterator[Directory]:
    requests: list[str] = []

    class Handler(WSGIRequestHandler):
        def log_message(self, format: str, *args: Any) -> None:
            requests.append(str(args[0]))

    storage = InMemoryStorage()
    app = BearerTokenApplication(storage, _schemas(), bearer_tokens=[TOKEN])
    server = make_server("127.0.0.1", 0, app, server_class=WSGIServer, handler_class=Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    settings.SCIM_URL = f"http://127.0.0.1:{server.server_port}/v2"
    settings.SCIM_TOKEN = TOKEN
    yield Directory(storage=storage, requests=requests)
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def hr() -> Registry:
    return load(["agents.flows.hr"])


@pytest.fixture
def engine(hr: Registry, by_hand: None) -> Iterator[Engine]:
    with engine_of(hr) as one:
        yield one


def context(key: str = "run/0/c1.0", deadline: float = 5.0) -> ToolContext:
    return ToolContext(run=RUN, frame="0", call="c1.0", attempt=1, key=key, deadline=deadline)
