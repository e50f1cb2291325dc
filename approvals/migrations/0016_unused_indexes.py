"""Requests and audit rows write less, as runs do since 0026.

`audit_order` finds an audit row as well as the index of its number, which no statement uses. Runs are never deleted, so
the foreign keys to them checked for an impossible case. This changes only the catalogue.
"""

from typing import Any, ClassVar

from django.db import migrations, models
from django.db.migrations.operations import AlterField
from django.db.migrations.operations.base import Operation

DROP_CONSTRAINT = "ALTER TABLE {} DROP CONSTRAINT IF EXISTS {}"


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
    atomic = False  # no two tables are locked together

    dependencies: ClassVar = [
        ("approvals", "0015_nonce_not_indexed"),
        ("runtime", "0026_fewer_indexes"),
    ]

    operations: ClassVar = [
        _in_database(
            DROP_CONSTRAINT.format("approvals_auditentry", "approvals_auditentry_pkey"),
        ),
        _in_database(
            DROP_CONSTRAINT.format(
                "approvals_auditentry", "approvals_auditentry_run_id_d375f7af_fk_runtime_run_id"
            ),
            _without_constraint("auditentry", "audit", indexed=False),
        ),
        _in_database(
            DROP_CONSTRAINT.format(
                "approvals_request", "approvals_request_run_id_6818cd7b_fk_runtime_run_id"
            ),
            _without_constraint("request", "requests"),
        ),
    ]
