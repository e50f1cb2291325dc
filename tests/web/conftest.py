"""Fixtures: runs started and suspended by the engine, with scripted agents."""

from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from agents.models import PublishedAgent
from tests.support.api_client import Caller
from tests.support.cast import Cast


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
    """Publish hr_onboarding in the catalogue, as a worker does."""
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
    """A client of Ada's, with a read-only token."""
    return Caller(cast.ada, ["runs:read", "approvals:read"])


def _logged_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client
