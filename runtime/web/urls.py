"""The URLs of the pages of runs and triggers, and of what belongs to the installation."""

from django.urls import URLPattern, path

from runtime.store.tables.trigger_rows import TriggerKind
from runtime.web import installation
from runtime.web.pages import kill_switches, recorded_runs, run, run_actions, runs, triggers


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
        path(f"{section}/", triggers.show_list, options, name=section),
        path(f"{section}/new/", triggers.create_trigger, options, name=f"new_{noun}"),
        path(f"{section}/<uuid:id>/", triggers.show_trigger, options, name=noun),
        path(f"{section}/<uuid:id>/change/", triggers.change, options, name=f"change_{noun}"),
        *changes,
    ]


urlpatterns = [
    path("runs/", runs.show_runs, name="runs"),
    path("runs.csv", runs.download, name="runs_csv"),
    *(
        path(f"runs/{name}-many/", runs.run_batch, {"name": name}, name=f"{name}_many")
        for name in runs.ACTS
    ),
    path("runs/compare/", runs.compare_chosen, name="compare_chosen"),
    path("runs/<uuid:run>/", run.run, name="run"),
    path("runs/<uuid:run>/at/<int:position>/", run.show_state_at, name="at"),
    path("runs/<uuid:run>/compare/<uuid:other>/", recorded_runs.compare, name="compare"),
    path("runs/<uuid:run>/fork/", recorded_runs.redirect_to_newest, name="newest"),
    path("runs/<uuid:run>/fork/<int:position>/", recorded_runs.fork, name="fork"),
    path("runs/<uuid:run>/cancel/", run_actions.cancel, name="cancel"),
    path("runs/<uuid:run>/message/", run_actions.message, name="message"),
    path("contents/<str:digest>/", run.send_blob, name="blob"),
    path("contents/<str:digest>/file/", run.send_file, name="file"),
    path("stops/", kill_switches.list_switches, name="kill_switches"),
    path("stops/put/", kill_switches.engage, name="engage"),
    path("stops/<int:stop>/lift/", kill_switches.disengage, name="disengage"),
    path("runs/<uuid:run>/readmit/", run_actions.release, name="release"),
    path("runs/<uuid:run>/retry/", run_actions.retry, name="retry"),
    path("runs/<uuid:run>/replay/", recorded_runs.replay, name="replay"),
    path("runs/<uuid:run>/removed/", run_actions.show_removed_entries, name="removed_entries"),
    path("runs/<uuid:run>/restore/", run_actions.restore, name="restore"),
    path("runs/<uuid:run>/hold/", run_actions.hold, name="hold"),
    path("runs/<uuid:run>/lift-hold/", run_actions.lift_hold, name="lift_hold"),
    path("runs/<uuid:run>/pause/", run_actions.pause, name="pause"),
    path("runs/<uuid:run>/resume/", run_actions.resume, name="resume"),
    path("manual/", installation.show_manual, name="manual"),
    path("manual/<path:page>/", installation.show_manual, name="manual_page"),
    *_trigger_paths(TriggerKind.SCHEDULE),
    path("schedules/<uuid:id>/run-now/", triggers.run_now, name="run_now"),
    path("schedules/<uuid:id>/backfill/", triggers.backfill, name="backfill"),
    *_trigger_paths(TriggerKind.EVENT),
    path("triggers/<uuid:id>/events/<int:number>/retry/", triggers.retry_event, name="retry_event"),
    path("triggers/<uuid:id>/webhook/", triggers.make_webhook, name="make_webhook"),
    path("triggers/<uuid:id>/webhook/remove/", triggers.remove_webhook, name="remove_webhook"),
    path("healthz", installation.answer_health, name="healthz"),
    path("readyz", installation.answer_readiness, name="readyz"),
    path("manifest.webmanifest", installation.serve_manifest, name="manifest"),
    path("sw.js", installation.serve_worker, name="worker"),
    path("offline/", installation.serve_offline_page, name="offline"),
]
