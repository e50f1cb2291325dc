"""Makes one table of triggers, one of the acts on them, and one of their times and events."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0051_remove_older_columns"),
    ]

    operations = [
        migrations.DeleteModel(
            name="Schedule",
        ),
        migrations.DeleteModel(
            name="ScheduleAct",
        ),
        migrations.DeleteModel(
            name="ScheduleTime",
        ),
        migrations.DeleteModel(
            name="Trigger",
        ),
        migrations.DeleteModel(
            name="TriggerAct",
        ),
        migrations.DeleteModel(
            name="TriggerEvent",
        ),
        migrations.CreateModel(
            name="Trigger",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("kind", models.TextField()),
                ("name", models.TextField()),
                ("agent", models.TextField()),
                ("owner", models.TextField()),
                ("event", models.TextField(db_default="")),
                ("state", models.TextField(db_default="active")),
                ("problem", models.TextField(db_default="")),
                ("next_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
                ("not_before", models.DateTimeField(null=True)),
                (
                    "created_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("due_at__isnull", False)),
                        fields=["due_at"],
                        name="trigger_due",
                    ),
                    models.Index(
                        condition=models.Q(("state", "active")),
                        fields=["event"],
                        name="trigger_event",
                    ),
                    models.Index(fields=["owner"], name="trigger_owner"),
                ],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="TriggerAct",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "seq",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("seq", models.IntegerField()),
                ("act", models.TextField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [],
                "constraints": [],
            },
        ),
        migrations.CreateModel(
            name="Occurrence",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "number",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("number", models.BigIntegerField()),
                ("kind", models.TextField()),
                ("at", models.DateTimeField()),
                ("state", models.TextField()),
                ("key", models.TextField(db_default="")),
                ("run", models.UUIDField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(db_default="")),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ["new", "waiting"])),
                        fields=["trigger", "number"],
                        name="occurrence_open",
                    ),
                    models.Index(
                        condition=models.Q(("state", "started")),
                        fields=["trigger", "key"],
                        name="occurrence_running",
                    ),
                    models.Index(
                        condition=models.Q(("started_at__isnull", False)),
                        fields=["trigger", "started_at"],
                        name="occurrence_started",
                    ),
                    models.Index(
                        condition=models.Q(("state", "failed")),
                        fields=["trigger", "-number"],
                        name="occurrence_failed",
                    ),
                    models.Index(
                        condition=models.Q(("run__isnull", False)),
                        fields=["run"],
                        name="occurrence_run",
                    ),
                    models.Index(
                        condition=models.Q(("kind", "event")), fields=["at"], name="occurrence_at"
                    ),
                ],
                "constraints": [],
            },
        ),
    ]
