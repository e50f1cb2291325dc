"""The runtime as a Django app."""

from django.apps import AppConfig


class RuntimeConfig(AppConfig):
    """The Django app of the engine."""

    name = "runtime"
