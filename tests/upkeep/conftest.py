"""A deadline for each test of this folder and its fixtures, so that a test that hangs shows where it waits."""

from collections.abc import Generator

import pytest

from tests.support.deadlines import deadline


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
