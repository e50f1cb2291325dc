"""An entry's MAC and its compressed body as bytes in one column, instead of as text in two."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0026_fewer_indexes")]

    operations: ClassVar = [
        migrations.SeparateDatabaseAndState(
            database_operations=[
                migrations.RunSQL(
                    "ALTER TABLE runtime_journalentry ADD COLUMN IF NOT EXISTS packed bytea",
                    migrations.RunSQL.noop,
                )
            ],
            state_operations=[
                migrations.AddField(
                    model_name="journalentry",
                    name="packed",
                    field=models.BinaryField(null=True),
                )
            ],
        ),
    ]
