"""An office: runs that really started, suspended and wait, made by the engine with scripted agents."""

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from django.test import Client

from runtime import dispatch
from tests.cast import Cast
from tests.desk.office import Office


@pytest.fixture
def office(transactional_db: None, cast: Cast, monkeypatch: pytest.MonkeyPatch) -> Iterator[Office]:
    """The engine at work on this test's database; hints go nowhere, since tests advance by hand."""
    monkeypatch.setattr(dispatch, "hint", lambda run: None)
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


def _logged_in(person: Any) -> Client:
    client = Client()
    client.force_login(person)
    return client
