"""The people and requests of these tests. Only the tests decide."""

from uuid import UUID

import pytest

from runtime.broker import dispatch
from runtime.ports.access import Actor
from tests.support import seeds
from tests.support.mail import sink  # noqa: F401 - a fixture
from tests.support.seeds import GROUPS


@pytest.fixture(autouse=True)
def hints(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The runs that workers were told to look at; there is no broker here."""
    told: list[UUID] = []
    monkeypatch.setattr(dispatch, "dispatch", lambda run, queue="": told.append(run))
    return told


@pytest.fixture
def ada() -> Actor:
    """Starts runs, and reviews those of others."""
    return seeds.person("ada", *GROUPS["ada"])


@pytest.fixture
def bea() -> Actor:
    """Reviews."""
    return seeds.person("bea", *GROUPS["bea"])


@pytest.fixture
def cyril() -> Actor:
    """Has no right."""
    return seeds.person("cyril", *GROUPS["cyril"])


@pytest.fixture
def admin() -> Actor:
    """Looks after the installation; decides nothing."""
    return seeds.person("admin", *GROUPS["admin"])
