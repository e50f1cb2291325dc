"""Connects all packages when Django is ready."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    """The Django app that connects the packages."""

    name = "config"

    def ready(self) -> None:
        """Set Celery's default app and connect the ports."""
        from config import celery, wiring

        # Without a default app, a process would send tasks to Celery's default broker.
        celery.app.set_default()
        wiring.connect()
