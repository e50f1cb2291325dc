"""Connects all packages when Django is ready."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        from config import celery, wiring

        # Without a default app, a process would send tasks to Celery's default broker.
        celery.app.set_default()
        wiring.connect()
