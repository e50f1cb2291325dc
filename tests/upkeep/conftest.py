"""A deadline for each test of this folder and its fixtures, so that a test that hangs shows where it waits.

The long runs of the tests of shortened journals.
"""

from collections.abc import Generator
from uuid import UUID

import pytest
from pytest_django import Settings

from tests.support.deadlines import deadline
from tests.support.engine import MakeBench, Rig
from tests.support.fake_ports import FakeTool
from tests.support.long_runs import READ, Compacting, plays, shortened


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None]:
    with deadline(f"setup of {item.name}"):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    with deadline(item.name):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    with deadline(f"teardown of {item.name}"):
        return (yield)


@pytest.fixture
def desk(rig: MakeBench, monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Rig:
    """An agent whose runs are long, and the rule that shortens them at once."""
    monkeypatch.setattr("tests.support.engine.FakeEffects", Compacting)
    settings.SIGNOFF_HISTORY_DAYS = 0.0
    return rig({"a": plays(30)}, read=READ, gated=FakeTool(gated=True))


@pytest.fixture
def long(desk: Rig) -> UUID:
    """A suspended run that has decided one gate, whose earlier entries were removed."""
    run = desk.advance(desk.start("a")).id
    desk.answer(run)
    assert shortened() > 20
    return run
