"""The fixtures of triggers by events."""

from tests.triggers.events.conftest import desk

__all__ = ["desk"]
