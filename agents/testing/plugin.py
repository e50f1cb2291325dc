"""The test kit as a plugin of pytest: `pytest_plugins = ["agents.testing.plugin"]`, or `-p agents.testing.plugin`.

It sets Django up before tests are collected, so that they may import agents, and gives them the fixture `drive`.
"""

import os
from collections.abc import Callable
from typing import Any

import pytest

# Before other plugins look for it, such as pytest-django.
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Set Django up, unless another plugin did."""
    from agents.testing import setup

    setup.configure()


@pytest.fixture
def drive() -> Callable[..., Any]:
    """Provide agents.testing.drive: a run in memory."""
    from agents.testing import drive

    return drive
