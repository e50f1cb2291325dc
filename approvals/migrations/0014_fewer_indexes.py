from django.db import migrations, models


class Migration(migrations.Migration):
    """Every request and every row of the audit wrote two indexes that no statement of ours uses.

    `audit_order` begins with the run as well, and no request is looked up by the beginning of its nonce.
    """

    dependencies = [("approvals", "0013_revoked")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "DROP INDEX IF EXISTS approvals_auditentry_run_id_d375f7af;"
                    " DROP INDEX IF EXISTS approvals_request_nonce_d384c3fc_like",
                    migrations.RunSQL.noop,
                )
            ],
            state_operations=[
                migrations.AlterField(
                    model_name="auditentry",
                    name="run",
                    field=models.ForeignKey(
                        db_index=False,
                        on_delete=models.PROTECT,
                        related_name="audit",
                        to="runtime.run",
                    ),
                )
            ],
        )
    ]
