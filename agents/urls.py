"""The addresses of this room's pages."""

from django.urls import path

from agents.views import agents

urlpatterns = [
    path("agents/", agents, name="agents"),
]
