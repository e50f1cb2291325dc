"""The addresses of the engine's pages and of its health."""

from django.urls import path

from runtime.health import healthz, readyz
from runtime.views import cancel, run, runs

urlpatterns = [
    path("runs/", runs, name="runs"),
    path("runs/<uuid:run>/", run, name="run"),
    path("runs/<uuid:run>/cancel/", cancel, name="cancel"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]
