"""A rolling release: a worker of the old and one of the new version side by side, with runs suspended in between."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import rolling
from tests.support.stack import Stack, shared_folder

pytestmark = pytest.mark.e2e

RUNS = 6
# Changes by the migrations of a next release: they only add. Run as Django runs a migration.
NEXT_RELEASE = """
from django.apps import apps
from django.db import connection, models
grown = 0
for model in [*apps.get_app_config('runtime').get_models(), *apps.get_app_config('approvals').get_models()]:
    with connection.schema_editor() as editor:
        for field in (models.TextField(null=True), models.IntegerField(db_default=7)):
            field.set_attributes_from_name('next_' + field.get_internal_type().lower())
            field.model = model
            editor.add_field(model, field)
        editor.execute(f'CREATE INDEX next_{grown} ON {model._meta.db_table} (next_textfield)')
        grown += 1
print('grown', grown)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """The stack, whose own worker has the old release, and the folder of the new one."""

    office: Office
    folder: Path
    new: Path

    def asked(self, run: str, kind: str) -> dict[str, Any] | None:
        """Return the pending request of the run's gate of this kind, if there is one."""
        path = f"/api/v1/approvals?kind={kind}&status=pending&run={run}"
        _, found = self.office.stack.ask("bea", "GET", path)
        return next(iter(found["items"]), None)

    def decide(self, run: str, kind: str, verdict: str, reason: str = "") -> None:
        """Once there is something to decide."""
        what = f"run {run} to wait at a gate of kind {kind}"
        approval = until(lambda: self.asked(run, kind), what)
        status, answer = self.office.decide("bea", approval, verdict, reason)
        assert status == 200, answer

    def noted(self, name: str) -> list[str]:
        lines = [line.split() for line in (self.folder / "ledger").read_text().splitlines()]
        return [tool for who, tool, what, _ in lines if (who, what) == (name, "begin")]

    def versions(self, run: str) -> list[str]:
        """The fingerprints that the run has met, in order."""
        return [
            event["fingerprint"]
            for event in self.office.events(run)
            if event["type"] in ("FrameOpened", "AgentChanged")
        ]

    def claims(self, run: str) -> int:
        code = f"from runtime.models import Run; print('epoch', Run.objects.get(id={run!r}).epoch)"
        return int(self.office.execute(code).split("epoch")[-1])


@pytest.fixture(scope="module")
def release(sandbox: Path) -> Iterator[Release]:
    folder = shared_folder(sandbox, "ledgers")
    old, new = rolling.write_releases(sandbox / "releases")
    stack = Stack(
        sandbox / "rolling",
        ABEYANCE_LEASE_SECONDS="2",
        ABEYANCE_AGENTS=f"agents.flows.hr,{rolling.MODULE}",
        AGENTS_DIR=str(old),
        HOLDING_FOLDER=str(folder),
    )
    with stack:
        yield Release(office=Office(stack), folder=folder, new=new)


def test_old_and_new_workers_share_runs_without_ping_pong(release: Release) -> None:
    names = [f"shared{number}" for number in range(RUNS)]
    runs = {name: release.office.begin("additive", name=name) for name in names}
    for run in runs.values():
        release.office.wait(run, "suspended")
    with processes.another(
        release.office.stack, "worker", "new", AGENTS_DIR=str(release.new)
    ) as new:
        for _ in range(2):
            for run in runs.values():
                release.decide(run, "approval", "approve")
        for name, run in runs.items():
            release.office.wait(run, "completed")
            assert release.noted(name) == ["note1", "note2"]
            met = release.versions(run)
            assert len(met) == len(set(met)) <= 2  # never back to the old one
            assert release.claims(run) <= 12
        assert new.said("Traceback") == 0


def test_both_releases_work_on_the_migrated_schema(release: Release) -> None:
    runs = {
        name: release.office.begin("additive", name=name) for name in ("grown1", "grown2", "grown3")
    }
    for run in runs.values():
        release.office.wait(run, "suspended")
    with processes.another(
        release.office.stack, "worker", "next", AGENTS_DIR=str(release.new)
    ) as new:
        owner = release.office.stack.superuser_url
        said = release.office.execute(NEXT_RELEASE, DATABASE_URL=owner)
        assert int(said.split("grown")[-1]) > 10
        for _ in range(2):
            for run in runs.values():
                release.decide(run, "approval", "approve")
        for name, run in runs.items():
            release.office.wait(run, "completed")
            assert release.noted(name) == ["note1", "note2"]
        later = release.office.begin("additive", name="later")
        for _ in range(2):
            release.decide(later, "approval", "approve")
        release.office.wait(later, "completed")
        raised = [
            new.said("Traceback"),
            processes.of(release.office.stack, "worker").said("Traceback"),
        ]
        assert raised == [0, 0]


def test_people_are_asked_where_the_versions_differ_too_much(release: Release) -> None:
    stack = release.office.stack
    go_on, stop = (
        release.office.begin("rewritten", name="asked"),
        release.office.begin("rewritten", name="stopped"),
    )
    for run in (go_on, stop):
        release.office.wait(run, "suspended")
    old = processes.of(stack, "worker")
    with processes.another(stack, "worker", "newer", AGENTS_DIR=str(release.new)):
        old.process.suspend()  # so that the new one gets the hints
        try:
            for run in (go_on, stop):
                release.decide(run, "approval", "approve")
            until(lambda: release.asked(stop, "version"), "the gate of the one that is stopped")
            until(lambda: release.asked(go_on, "version"), "the gate of the one that goes on")
        finally:
            old.process.resume()
        release.decide(stop, "version", "stop", "not with care")
        release.decide(go_on, "version", "continue")
        release.decide(go_on, "approval", "approve")
        assert release.office.wait(stop, "cancelled")["reason"] == "not with care"
        release.office.wait(go_on, "completed")
    assert release.noted("asked") == ["note1", "note2"]
    assert release.noted("stopped") == []
    assert len(release.versions(go_on)) == 2
    assert release.claims(go_on) <= 16
