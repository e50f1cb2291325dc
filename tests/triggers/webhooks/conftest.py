"""The desk of the tests of triggers."""

from tests.triggers.events.conftest import desk

__all__ = ["desk"]
