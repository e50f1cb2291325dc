"""Defines Celery's request for a received hint."""

from celery.worker.request import Request


class UnacknowledgedRequest(Request):  # type: ignore[misc]  # Celery has no types
    """A request that is not acknowledged: the broker does not track hints.

    Celery would wake its main thread for each acknowledgement.
    """

    def acknowledge(self) -> None:
        """Record the acknowledgement without sending it."""
        self.acknowledged = True
