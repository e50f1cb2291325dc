"""The addresses of the engine's pages and of its health."""

from django.urls import path

from runtime.health import healthz, readyz
from runtime.views.cancel import cancel
from runtime.views.run import at, run
from runtime.views.runs import runs

urlpatterns = [
    path("runs/", runs, name="runs"),
    path("runs/<uuid:run>/", run, name="run"),
    path("runs/<uuid:run>/at/<int:position>/", at, name="at"),
    path("runs/<uuid:run>/cancel/", cancel, name="cancel"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]
