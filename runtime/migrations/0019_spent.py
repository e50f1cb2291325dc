"""Used approvals, one row for each attempt; Postgres refuses to change or delete them."""

from typing import ClassVar

import django.db.models.functions
from django.db import migrations, models

CREATE = """
CREATE FUNCTION runtime_spent_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'rows of spent approvals are append-only: % refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER runtime_spent_append_only
    BEFORE UPDATE OR DELETE ON runtime_spent
    FOR EACH ROW EXECUTE FUNCTION runtime_spent_refuse();
"""

DROP = """
DROP TRIGGER runtime_spent_append_only ON runtime_spent;
DROP FUNCTION runtime_spent_refuse();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0018_partitions_move")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="Spent",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "gate",
                        "attempt",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("gate", models.UUIDField()),
                ("attempt", models.IntegerField()),
                ("run_id", models.UUIDField(db_index=True)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.Now())),
            ],
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
