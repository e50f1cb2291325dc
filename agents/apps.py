"""The agents as a Django app."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    name = "agents"
