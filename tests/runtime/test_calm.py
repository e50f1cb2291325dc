"""A process robs nobody for one lease after its view of Postgres was disturbed."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from runtime.upkeep.calm import Calm

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> list[float]:
    """Append how many seconds have passed on our own clock; a lease has 10 s."""
    settings.ABEYANCE_LEASE_SECONDS = 10.0
    seconds: list[float] = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + sum(seconds))
    return seconds


def test_it_is_calm_from_the_start(passed: list[float]) -> None:
    assert Calm().over


def test_one_lease_passes_after_a_lost_connection(passed: list[float]) -> None:
    calm = Calm()
    calm.begin()
    passed.append(9.9)
    assert not calm.over
    passed.append(0.1)
    assert calm.over


@pytest.mark.parametrize(("jump", "over"), [(3600.0, False), (4.9, True), (-3600.0, True)])
def test_one_lease_passes_after_the_clock_of_postgres_was_set_ahead(
    passed: list[float], jump: float, over: bool
) -> None:
    calm = Calm()
    calm.look(NOON)
    passed.append(1.0)
    calm.look(NOON + timedelta(seconds=1.0 + jump))
    assert calm.over is over
    passed.append(10.0)
    calm.look(NOON + timedelta(seconds=11.0 + jump))
    assert calm.over


def test_an_outage_is_no_jump_of_the_clock(passed: list[float]) -> None:
    calm = Calm()
    calm.look(NOON)
    calm.begin()
    passed.append(10.0)
    calm.look(NOON + timedelta(hours=1))
    assert calm.over
