"""Adds the archive of runs: its table, when a run left for it, and the legal hold of a run."""

import django.contrib.postgres.fields
import django.contrib.postgres.indexes
import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0042_memory_summary"),
    ]

    operations = [
        migrations.AddField(
            model_name="run",
            name="archived_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="run",
            name="legal_hold",
            field=models.JSONField(null=True),
        ),
        migrations.CreateModel(
            name="ArchivedRun",
            fields=[
                (
                    "run",
                    models.OneToOneField(
                        on_delete=django.db.models.deletion.PROTECT,
                        primary_key=True,
                        related_name="+",
                        serialize=False,
                        to="runtime.run",
                    ),
                ),
                ("place", models.TextField(null=True, unique=True)),
                ("state", models.TextField()),
                ("digest", models.TextField(db_default="")),
                ("size", models.BigIntegerField(db_default=0)),
                (
                    "contents",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.TextField(), db_default=[], size=None
                    ),
                ),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                "indexes": [
                    django.contrib.postgres.indexes.GinIndex(
                        fields=["contents"], name="archived_run_contents"
                    )
                ],
            },
        ),
    ]
