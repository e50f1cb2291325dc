from django.db import migrations, models


class Migration(migrations.Migration):
    """The unique index of the nonce took more bytes of a request than any other, and no statement uses it.

    A nonce has 128 random bits, and what binds a digest to its request are run and gate, which stand in it as well.
    """

    dependencies = [("approvals", "0014_fewer_indexes")]

    operations = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE approvals_request DROP CONSTRAINT IF EXISTS approvals_request_nonce_key",
                    migrations.RunSQL.noop,
                )
            ],
            state_operations=[
                migrations.AlterField(model_name="request", name="nonce", field=models.TextField())
            ],
        )
    ]
