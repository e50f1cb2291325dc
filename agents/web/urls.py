"""The URLs of the pages of agents."""

from django.urls import path

from agents.web.views import agent, agents, start, tools

urlpatterns = [
    path("agents/", agents, name="agents"),
    path("tools/", tools, name="tools"),
    path("agents/<path:name>/start/", start, name="start"),
    path("agents/<path:name>/", agent, name="agent"),
]
