"""Late outcomes of calls; Postgres refuses to change such a row."""

from typing import ClassVar

import django.db.models.deletion
from django.db import migrations, models

CREATE = """
CREATE FUNCTION runtime_lateoutcome_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' AND EXISTS (
        SELECT FROM runtime_run WHERE id = OLD.run_id AND removed_at IS NOT NULL) THEN
        RETURN OLD;
    END IF;
    RAISE EXCEPTION 'rows of late outcomes are append-only: % refused', TG_OP
        USING ERRCODE = 'insufficient_privilege';
END $$;
CREATE TRIGGER runtime_lateoutcome_append_only
    BEFORE UPDATE OR DELETE ON runtime_lateoutcome
    FOR EACH ROW EXECUTE FUNCTION runtime_lateoutcome_refuse();
"""

DROP = """
DROP TRIGGER runtime_lateoutcome_append_only ON runtime_lateoutcome;
DROP FUNCTION runtime_lateoutcome_refuse();
"""


class Migration(migrations.Migration):
    dependencies: ClassVar = [("runtime", "0020_origin")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="LateOutcome",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "frame",
                        "call",
                        "attempt",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("attempt", models.IntegerField()),
                ("started_at", models.DateTimeField()),
                ("worker", models.UUIDField()),
                ("at", models.DateTimeField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        related_name="+",
                        to="runtime.run",
                    ),
                ),
            ],
        ),
        migrations.RunSQL(CREATE, DROP),
    ]
