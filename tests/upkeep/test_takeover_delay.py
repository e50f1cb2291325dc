"""A sweeper takes over no run for one lease after it connects or sees a clock jump."""

import time
from datetime import UTC, datetime, timedelta

import pytest
from pytest_django import Settings

from runtime.upkeep.takeover_delay import TakeoverDelay

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> list[float]:
    """Append how many seconds have passed on our own clock; a lease has 10 s."""
    settings.ABEYANCE_LEASE_SECONDS = 10.0
    seconds: list[float] = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0 + sum(seconds))
    return seconds


def test_one_lease_passes_after_a_lost_connection(passed: list[float]) -> None:
    assert TakeoverDelay().over
    delay = TakeoverDelay()
    delay.observe(NOON)
    delay.begin()
    passed.append(9.9)
    assert not delay.over
    passed.append(0.1)
    delay.observe(NOON + timedelta(hours=1))  # an outage is no jump of the clock
    assert delay.over


@pytest.mark.parametrize(("jump", "over"), [(3600.0, False), (4.9, True), (-3600.0, True)])
def test_one_lease_passes_after_the_clock_was_set_ahead(
    passed: list[float], jump: float, over: bool
) -> None:
    delay = TakeoverDelay()
    delay.observe(NOON)
    passed.append(1.0)
    delay.observe(NOON + timedelta(seconds=1.0 + jump))
    assert delay.over is over
    passed.append(10.0)
    delay.observe(NOON + timedelta(seconds=11.0 + jump))
    assert delay.over
