"""The URLs of the pages of runs and of the health endpoints."""

from django.urls import path

from runtime.web.health import healthz, readyz
from runtime.web.installable import manifest, offline, worker
from runtime.web.manual import manual
from runtime.web.pages.archive import hold, lift_hold, removed, restore
from runtime.web.pages.blobs import blob
from runtime.web.pages.cancel import cancel
from runtime.web.pages.fork import fork, newest
from runtime.web.pages.kill_switches import disengage, engage, list_switches
from runtime.web.pages.message import message
from runtime.web.pages.pause import pause, resume
from runtime.web.pages.recorded.comparison import compare
from runtime.web.pages.recorded.replay import replay
from runtime.web.pages.retry import release, retry
from runtime.web.pages.run import at, run
from runtime.web.pages.runs import compare_chosen, runs
from runtime.web.pages.runs_download import download
from runtime.web.pages.triggers.schedule_form import change, new
from runtime.web.pages.triggers.schedules import backfill, end, run_now, schedule, schedules
from runtime.web.pages.triggers.schedules import pause as pause_schedule
from runtime.web.pages.triggers.schedules import resume as resume_schedule
from runtime.web.pages.triggers.trigger_form import change as change_trigger
from runtime.web.pages.triggers.trigger_form import new as new_trigger
from runtime.web.pages.triggers.triggers import end as end_trigger
from runtime.web.pages.triggers.triggers import make_webhook, remove_webhook, trigger, triggers
from runtime.web.pages.triggers.triggers import pause as pause_trigger
from runtime.web.pages.triggers.triggers import resume as resume_trigger
from runtime.web.pages.triggers.triggers import retry as retry_event

urlpatterns = [
    path("runs/", runs, name="runs"),
    path("runs.csv", download, name="runs_csv"),
    path("runs/compare/", compare_chosen, name="compare_chosen"),
    path("runs/<uuid:run>/", run, name="run"),
    path("runs/<uuid:run>/at/<int:position>/", at, name="at"),
    path("runs/<uuid:run>/compare/<uuid:other>/", compare, name="compare"),
    path("runs/<uuid:run>/fork/", newest, name="newest"),
    path("runs/<uuid:run>/fork/<int:position>/", fork, name="fork"),
    path("runs/<uuid:run>/cancel/", cancel, name="cancel"),
    path("runs/<uuid:run>/message/", message, name="message"),
    path("contents/<str:digest>/", blob, name="blob"),
    path("stops/", list_switches, name="kill_switches"),
    path("stops/put/", engage, name="engage"),
    path("stops/<int:stop>/lift/", disengage, name="disengage"),
    path("runs/<uuid:run>/readmit/", release, name="release"),
    path("runs/<uuid:run>/retry/", retry, name="retry"),
    path("runs/<uuid:run>/replay/", replay, name="replay"),
    path("runs/<uuid:run>/removed/", removed, name="removed_entries"),
    path("runs/<uuid:run>/restore/", restore, name="restore"),
    path("runs/<uuid:run>/hold/", hold, name="hold"),
    path("runs/<uuid:run>/lift-hold/", lift_hold, name="lift_hold"),
    path("runs/<uuid:run>/pause/", pause, name="pause"),
    path("runs/<uuid:run>/resume/", resume, name="resume"),
    path("manual/", manual, name="manual"),
    path("manual/<path:page>/", manual, name="manual_page"),
    path("schedules/", schedules, name="schedules"),
    path("schedules/new/", new, name="new_schedule"),
    path("schedules/<uuid:id>/", schedule, name="schedule"),
    path("schedules/<uuid:id>/change/", change, name="change_schedule"),
    path("schedules/<uuid:id>/pause/", pause_schedule, name="pause_schedule"),
    path("schedules/<uuid:id>/resume/", resume_schedule, name="resume_schedule"),
    path("schedules/<uuid:id>/end/", end, name="end_schedule"),
    path("schedules/<uuid:id>/run-now/", run_now, name="run_now"),
    path("schedules/<uuid:id>/backfill/", backfill, name="backfill"),
    path("triggers/", triggers, name="triggers"),
    path("triggers/new/", new_trigger, name="new_trigger"),
    path("triggers/<uuid:id>/", trigger, name="trigger"),
    path("triggers/<uuid:id>/change/", change_trigger, name="change_trigger"),
    path("triggers/<uuid:id>/pause/", pause_trigger, name="pause_trigger"),
    path("triggers/<uuid:id>/resume/", resume_trigger, name="resume_trigger"),
    path("triggers/<uuid:id>/end/", end_trigger, name="end_trigger"),
    path("triggers/<uuid:id>/events/<int:number>/retry/", retry_event, name="retry_event"),
    path("triggers/<uuid:id>/webhook/", make_webhook, name="make_webhook"),
    path("triggers/<uuid:id>/webhook/remove/", remove_webhook, name="remove_webhook"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("manifest.webmanifest", manifest, name="manifest"),
    path("sw.js", worker, name="worker"),
    path("offline/", offline, name="offline"),
]
