"""What Celery makes of a hint that a worker takes."""

from celery.worker.request import Request


class Hint(Request):  # type: ignore[misc]  # Celery has no types
    """A hint is not acknowledged: the broker keeps no account of it.

    Celery would have its main thread do so, and wake it for each hint.
    """

    def acknowledge(self) -> None:
        self.acknowledged = True
