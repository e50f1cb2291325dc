"""The URLs of the pages of runs and triggers, and of what belongs to the installation."""

from django.urls import URLPattern, path

from runtime.store.tables.trigger_rows import TriggerKind
from runtime.web.installation import healthz, manifest, manual, offline, readyz, worker
from runtime.web.pages import triggers
from runtime.web.pages.kill_switches import disengage, engage, list_switches
from runtime.web.pages.recorded_runs import compare, fork, newest, replay
from runtime.web.pages.run import at, blob, file, run
from runtime.web.pages.run_actions import (
    cancel,
    hold,
    lift_hold,
    message,
    pause,
    release,
    removed,
    restore,
    resume,
    retry,
)
from runtime.web.pages.runs import ACTS, compare_chosen, download, run_batch, runs


def _trigger_paths(kind: TriggerKind) -> list[URLPattern]:
    """Return the addresses that schedules and triggers both have."""
    noun, section, options = kind.noun, f"{kind.noun}s", {"kind": kind}
    changes = [
        path(
            f"{section}/<uuid:id>/{act}/",
            triggers.change_state,
            {**options, "act": act},
            name=f"{act}_{noun}",
        )
        for act in triggers.CHANGES
    ]
    return [
        path(f"{section}/", triggers.list_page, options, name=section),
        path(f"{section}/new/", triggers.new, options, name=f"new_{noun}"),
        path(f"{section}/<uuid:id>/", triggers.trigger_page, options, name=noun),
        path(f"{section}/<uuid:id>/change/", triggers.change, options, name=f"change_{noun}"),
        *changes,
    ]


urlpatterns = [
    path("runs/", runs, name="runs"),
    path("runs.csv", download, name="runs_csv"),
    *(path(f"runs/{name}-many/", run_batch, {"name": name}, name=f"{name}_many") for name in ACTS),
    path("runs/compare/", compare_chosen, name="compare_chosen"),
    path("runs/<uuid:run>/", run, name="run"),
    path("runs/<uuid:run>/at/<int:position>/", at, name="at"),
    path("runs/<uuid:run>/compare/<uuid:other>/", compare, name="compare"),
    path("runs/<uuid:run>/fork/", newest, name="newest"),
    path("runs/<uuid:run>/fork/<int:position>/", fork, name="fork"),
    path("runs/<uuid:run>/cancel/", cancel, name="cancel"),
    path("runs/<uuid:run>/message/", message, name="message"),
    path("contents/<str:digest>/", blob, name="blob"),
    path("contents/<str:digest>/file/", file, name="file"),
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
    *_trigger_paths(TriggerKind.SCHEDULE),
    path("schedules/<uuid:id>/run-now/", triggers.run_now, name="run_now"),
    path("schedules/<uuid:id>/backfill/", triggers.backfill, name="backfill"),
    *_trigger_paths(TriggerKind.EVENT),
    path("triggers/<uuid:id>/events/<int:number>/retry/", triggers.retry_event, name="retry_event"),
    path("triggers/<uuid:id>/webhook/", triggers.make_webhook, name="make_webhook"),
    path("triggers/<uuid:id>/webhook/remove/", triggers.remove_webhook, name="remove_webhook"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("manifest.webmanifest", manifest, name="manifest"),
    path("sw.js", worker, name="worker"),
    path("offline/", offline, name="offline"),
]
