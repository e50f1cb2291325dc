"""A flow writes fewer index entries, and a gate's updates change no index.

No statement reads a gate by `kind` and `state`, or a spent approval by its run. Without the first index Postgres
updates a gate in place (HOT), which it cannot where an indexed column changes. Runs without a business key, which are
most, are left out of `run_business_key`: it keeps its name, so `ON CONFLICT ON CONSTRAINT` of the version before finds
it. Postgres reads the table once for that, with the table locked: 0.3 to 2.3 s for a million runs. Everything else
changes only the catalogue.

Runs are never deleted, and web and workers may not delete them. So the foreign keys of gates and signals checked what
cannot happen, and each check locked the run's row again.
"""

from typing import Any, ClassVar

from django.db import migrations, models
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation

DROP_INDEX = "DROP INDEX CONCURRENTLY IF EXISTS {}"
DROP_CONSTRAINT = "ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}"
PARTIAL = """
ALTER TABLE runtime_run DROP CONSTRAINT IF EXISTS run_business_key,
    ADD CONSTRAINT run_business_key EXCLUDE USING btree
        (agent WITH =, requester WITH =, business_key WITH =) WHERE (business_key IS NOT NULL)
"""


def _in_database(sql: str, *state: Operation) -> migrations.SeparateDatabaseAndState:
    return migrations.SeparateDatabaseAndState(
        database_operations=[migrations.RunSQL(sql, migrations.RunSQL.noop)],
        state_operations=list(state),
    )


def _without_constraint(
    model: str, related_name: str | None = None, *, indexed: bool = True
) -> AlterField:
    run: models.ForeignKey[Any, Any] = models.ForeignKey(
        db_constraint=False,
        db_index=indexed,
        on_delete=models.PROTECT,
        related_name=related_name,
        to="runtime.run",
    )
    return AlterField(model_name=model, name="run", field=run)


class Migration(migrations.Migration):
    atomic = False  # an index is dropped concurrently, and no two tables are locked together

    dependencies: ClassVar = [("runtime", "0025_worker_lease")]

    operations: ClassVar = [
        _in_database(
            DROP_INDEX.format("gate_open"),
            migrations.RemoveIndex(model_name="gate", name="gate_open"),
        ),
        _in_database(
            DROP_INDEX.format("runtime_spent_run_id_b88efe2d"),
            AlterField(model_name="spent", name="run_id", field=models.UUIDField()),
        ),
        _in_database(PARTIAL),
        _in_database(
            DROP_CONSTRAINT.format(
                "runtime_gate", "runtime_gate_run_id_03146e14_fk_runtime_run_id"
            ),
            _without_constraint("gate", "gates"),
        ),
        _in_database(
            DROP_CONSTRAINT.format(
                "runtime_signal", "runtime_signal_run_id_54db33c5_fk_runtime_run_id"
            ),
            _without_constraint("signal"),
        ),
    ]
