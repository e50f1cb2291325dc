"""The people and requests of these tests. Only the tests decide."""

from uuid import UUID

import pytest

from runtime import broker
from tests.support import seeds
from tests.support.mail import sink  # noqa: F401 - a fixture
from tests.support.seeds import GROUPS


@pytest.fixture(autouse=True)
def hints(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """The runs that workers were told to look at; there is no broker here."""
    told: list[UUID] = []
    monkeypatch.setattr(broker, "dispatch", lambda run, queue="": told.append(run))
    return told


# Ada starts runs, and reviews those of others; Bea reviews; Cyril has no right; the admin decides nothing.
ada, bea, cyril, admin = (
    pytest.fixture(lambda name=name: seeds.person(name, *GROUPS[name]))
    for name in ("ada", "bea", "cyril", "admin")
)
