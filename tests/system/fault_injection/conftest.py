"""Loops on the test database, and the people."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings
from django.db import connection

from runtime.control import verification
from tests.support.scripted_agents import ledger
from tests.support.seeds import Cast
from tests.system.fault_injection.harness.counts import LONG
from tests.system.fault_injection.harness.loop import Loop
from tests.system.fault_injection.harness.office import Office

MakeLoop = Callable[..., Loop]

# Slow tests that gain nothing from repetition run only in the long form.
collect_ignore = [] if LONG else ["test_promotion.py", "test_seeds.py"]


@pytest.fixture
def office(cast: Cast, tmp_path: Path, by_hand: None) -> Iterator[Office]:
    """Yield the office, then check that the stored states match the journals."""
    yield Office(ledger=tmp_path / "ledger")
    looked = [verification.verify(run) for run in verification.list_runs(live=False)]
    assert [one for one in looked if not one.is_consistent] == []


@pytest.fixture
def forks(transactional_db: None, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let processes be forked that use the test database and the session's keys: their server starts with the first."""
    server = postgres_url.rpartition("/")[0]
    monkeypatch.setenv("DATABASE_URL", f"{server}/{connection.settings_dict['NAME']}")
    monkeypatch.setenv("REDIS_URL", settings.REDIS_URL)
    monkeypatch.setenv("KEYS_DIR", str(settings.KEYS_DIR))
    monkeypatch.setenv("SIGNOFF_AGENTS", "tests.support.scripted_agents.flows")


@pytest.fixture
def loops(forks: None, office: Office, tmp_path: Path) -> Iterator[MakeLoop]:
    """Start loops with the ledger; none is left at the end."""
    made: list[Loop] = []

    def make(**options: object) -> Loop:
        more = {ledger.PATH: str(office.ledger), **options}
        made.append(Loop(tmp_path, **more))  # type: ignore[arg-type]
        made[-1].wait_until_ready()
        return made[-1]

    yield make
    for loop in made:
        loop.kill()
