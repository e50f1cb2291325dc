"""An office: runs that really started, suspended and wait, made by the engine with scripted agents."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import PublishedAgent
from runtime.broker import dispatch
from tests.support.api_client import Caller
from tests.support.cast import Cast
from tests.support.office import Office


@pytest.fixture
def office(transactional_db: None, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """The engine at work on this test's database; hints go nowhere, since tests advance by hand."""
    monkeypatch.setattr(dispatch, "hint", lambda run, queue="": None)
    office = Office()
    yield office
    office.close()


@pytest.fixture
def suspended(office: Office) -> UUID:
    """Ada's run, which waits for somebody to approve the privileges."""
    return office.start()


@pytest.fixture
def bea(cast: Cast) -> Client:
    return _logged_in(cast.bea)


@pytest.fixture
def ada(cast: Cast) -> Client:
    return _logged_in(cast.ada)


@pytest.fixture
def cyril(cast: Cast) -> Client:
    return _logged_in(cast.cyril)


@pytest.fixture
def admin(cast: Cast) -> Client:
    return _logged_in(cast.admin)


@pytest.fixture
def published(cast: Cast) -> None:
    """The catalogue knows hr_onboarding, as if a worker had published it."""
    properties: dict[str, Any] = {
        "full_name": {"type": "string"},
        "username": {"type": "string"},
        "security_level": {"type": "integer"},
    }
    PublishedAgent.objects.create(
        name="hr_onboarding",
        description="",
        fingerprint="sha256:f",
        input_schema={"type": "object", "properties": properties, "required": list(properties)},
        tools=[],
        subagents=[],
        steps=None,
        published_at=timezone.now(),
    )


@pytest.fixture
def ada_api(cast: Cast) -> Caller:
    return Caller(cast.ada)


@pytest.fixture
def bea_api(cast: Cast) -> Caller:
    return Caller(cast.bea)


@pytest.fixture
def cyril_api(cast: Cast) -> Caller:
    return Caller(cast.cyril)


@pytest.fixture
def admin_api(cast: Cast) -> Caller:
    return Caller(cast.admin)


@pytest.fixture
def narrow_api(cast: Cast) -> Caller:
    """Ada's, with a token that may only read."""
    return Caller(cast.ada, ["runs:read", "approvals:read"])


def _logged_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client
