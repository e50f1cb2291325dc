"""Calls wait for events from outside."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("runtime", "0012_unheard")]

    operations = [
        migrations.CreateModel(
            name="Wait",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "run_id",
                        "frame",
                        "call",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("frame", models.TextField()),
                ("call", models.TextField()),
                ("event", models.TextField()),
                ("match", models.JSONField()),
                ("until", models.DateTimeField()),
                (
                    "run",
                    models.ForeignKey(
                        db_index=False,
                        on_delete=django.db.models.deletion.PROTECT,
                        to="runtime.run",
                    ),
                ),
            ],
            options={"indexes": [models.Index(fields=["event", "run"], name="wait_event")]},
        ),
        migrations.CreateModel(
            name="OutsideEvent",
            fields=[
                ("id", models.TextField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("digest", models.TextField()),
                ("waits", models.IntegerField()),
                ("sent_by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={"indexes": [models.Index(fields=["at"], name="outside_event_at")]},
        ),
    ]
