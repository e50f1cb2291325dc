"""The agents as a Django app."""

from django.apps import AppConfig


class AgentsConfig(AppConfig):
    """The Django app of agents."""

    name = "agents"
