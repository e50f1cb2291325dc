"""The mail server of these tests."""

from tests.support.mail import sink

__all__ = ["sink"]
