"""The fuse box as a Django app: when Django is ready, everything is connected."""

from django.apps import AppConfig


class ConfigConfig(AppConfig):
    name = "config"

    def ready(self) -> None:
        from config import celery, wiring

        # Whoever sends a task without the app loaded would send it to a default broker.
        celery.app.set_default()
        wiring.connect()
