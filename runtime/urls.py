"""The addresses of the engine's pages and of its health."""

from django.urls import path

from runtime.health import healthz, readyz
from runtime.views.again import readmit, retry
from runtime.views.cancel import cancel
from runtime.views.comparison import compare
from runtime.views.contents import content
from runtime.views.fork import fork, newest
from runtime.views.message import message
from runtime.views.pace import pause, resume
from runtime.views.run import at, run
from runtime.views.runs import runs
from runtime.views.stops import lift, stop, stops

urlpatterns = [
    path("runs/", runs, name="runs"),
    path("runs/<uuid:run>/", run, name="run"),
    path("runs/<uuid:run>/at/<int:position>/", at, name="at"),
    path("runs/<uuid:run>/compare/<uuid:other>/", compare, name="compare"),
    path("runs/<uuid:run>/fork/", newest, name="newest"),
    path("runs/<uuid:run>/fork/<int:position>/", fork, name="fork"),
    path("runs/<uuid:run>/cancel/", cancel, name="cancel"),
    path("runs/<uuid:run>/message/", message, name="message"),
    path("contents/<str:digest>/", content, name="content"),
    path("stops/", stops, name="stops"),
    path("stops/put/", stop, name="put_stop"),
    path("stops/<int:stop>/lift/", lift, name="lift_stop"),
    path("runs/<uuid:run>/readmit/", readmit, name="readmit"),
    path("runs/<uuid:run>/retry/", retry, name="retry"),
    path("runs/<uuid:run>/pause/", pause, name="pause"),
    path("runs/<uuid:run>/resume/", resume, name="resume"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
]
