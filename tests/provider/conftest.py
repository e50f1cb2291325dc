"""The HR agents on the real engine, their models on the loopback provider, real servers around them."""

from collections.abc import Iterator

import pytest
from pytest_django import Settings

from agents.registry import Registry
from tests.agents.conftest import directory, engine, hr, sink
from tests.provider.server import KEY, Provider

__all__ = ["directory", "engine", "hr", "provider", "sink"]


@pytest.fixture
def provider(hr: Registry, settings: Settings) -> Iterator[Provider]:
    """Answers instead of the scripts; give it `faults` before a run begins."""
    with Provider(hr) as one:
        settings.ABEYANCE_MODEL = "openai:loopback"
        settings.OPENAI_BASE_URL = one.url
        settings.OPENAI_API_KEY = KEY
        yield one
