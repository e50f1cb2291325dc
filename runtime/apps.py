"""The runtime as a Django app."""

from django.apps import AppConfig


class RuntimeConfig(AppConfig):
    name = "runtime"
