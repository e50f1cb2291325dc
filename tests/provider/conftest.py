"""The HR agents on the real engine, their models on the loopback provider, real servers around them."""

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from agents.effect_handler import AgentEffects
from agents.registry import Registry
from tests.agents.conftest import directory, engine, hr
from tests.support.mail import sink
from tests.support.provider.server import Provider, serving
from tests.support.provider.wire import Wire
from tests.support.specs import NEWCOMER, Frame

__all__ = ["directory", "engine", "frame", "hr", "provider", "sink"]


@pytest.fixture
def provider(hr: Registry, settings: Settings) -> Iterator[Provider]:
    """Answers instead of the scripts; give it `faults` before a run begins."""
    with serving(hr, settings) as one:
        yield one


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch, settings: Settings) -> Wire:
    """Answers instead of both providers, without a socket."""
    return Wire(monkeypatch, settings)


@pytest.fixture
def frame(hr: Registry) -> Frame:
    return Frame(AgentEffects(hr), "account_agent", NEWCOMER)
