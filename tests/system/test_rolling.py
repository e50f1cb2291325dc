"""A rolling release: a worker of the old and one of the new version side by side, with runs suspended in between."""

from pathlib import Path

import pytest

from tests.support import processes
from tests.support.people import Office, until
from tests.support.scripted_agents import holding, ledger
from tests.support.stack import with_ledger

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


def test_old_and_new_workers_share_runs_without_ping_pong(sandbox: Path) -> None:
    stack, book = with_ledger(sandbox, "rolling", holding.__name__)
    with stack:
        office = Office(stack)
        runs = {f"shared{n}": office.begin("additive", name=f"shared{n}") for n in range(RUNS)}
        for run in runs.values():
            office.wait(run, "suspended")
        with processes.another(stack, "worker", "new", **{holding.NEWER: "1"}) as newer:
            for run in runs.values():
                _approve(office, run)
            said = office.execute(NEXT_RELEASE, DATABASE_URL=stack.superuser_url)
            assert int(said.split("grown")[-1]) > 10
            runs["later"] = office.begin("additive", name="later")
            _approve(office, runs["later"])
            for run in runs.values():
                _approve(office, run)
                office.wait(run, "completed")
            assert newer.said("Traceback") == processes.of(stack, "worker").said("Traceback") == 0
        keys = [effect.key for effect in ledger.read(book)]
        assert len(keys) == 2 * len(runs)
        for name, run in runs.items():
            assert keys.index(f"{name}/c1.0") < keys.index(f"{name}/c2.0")
            met = [one["fingerprint"] for one in office.events(run) if "fingerprint" in one]
            assert len(met) == len(set(met)) <= 2  # never back to the old one
        assert max(epoch for (epoch,) in stack.rows("SELECT epoch FROM runtime_run")) <= 12


def _approve(office: Office, run: str) -> None:
    """Once there is something to decide."""
    path = f"/api/v1/approvals?kind=approval&status=pending&run={run}"
    found = until(lambda: office.stack.ask("bea", "GET", path)[1]["items"] or None, "a gate")
    assert office.decide("bea", found[0], "approve")[0] == 200
