"""Adds triggers, the acts of people on them, received events, and what became of each event of a trigger."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0035_limited"),
    ]

    operations = [
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
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("body", models.TextField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
        ),
        migrations.CreateModel(
            name="ReceivedEvent",
            fields=[
                ("seq", models.BigAutoField(primary_key=True, serialize=False)),
                ("key", models.TextField(unique=True)),
                ("source", models.TextField()),
                ("event_id", models.TextField()),
                ("name", models.TextField()),
                ("subject", models.TextField()),
                ("data", models.TextField()),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField()),
                ("mac", models.TextField()),
                ("key_id", models.TextField()),
            ],
            options={
                "indexes": [models.Index(fields=["at"], name="received_event_at")],
            },
        ),
        migrations.CreateModel(
            name="Trigger",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("agent", models.TextField()),
                ("owner", models.TextField()),
                ("event", models.TextField()),
                ("state", models.TextField(db_default="active")),
                ("problem", models.TextField(db_default="")),
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
                        condition=models.Q(("state", "active")),
                        fields=["event"],
                        name="trigger_event",
                    ),
                    models.Index(fields=["owner"], name="trigger_owner"),
                ],
            },
        ),
        migrations.CreateModel(
            name="TriggerEvent",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "trigger",
                        "event",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("trigger", models.UUIDField()),
                ("event", models.BigIntegerField()),
                ("at", models.DateTimeField()),
                ("state", models.TextField(db_default="new")),
                ("key", models.TextField(db_default="")),
                ("run", models.UUIDField(null=True)),
                ("started_at", models.DateTimeField(null=True)),
                ("reason", models.TextField(db_default="")),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ["new", "waiting"])),
                        fields=["trigger", "event"],
                        name="trigger_event_open",
                    ),
                    models.Index(
                        condition=models.Q(("state", "started")),
                        fields=["trigger", "key"],
                        name="trigger_event_runs",
                    ),
                    models.Index(
                        condition=models.Q(("started_at__isnull", False)),
                        fields=["trigger", "started_at"],
                        name="trigger_event_started",
                    ),
                    models.Index(
                        condition=models.Q(("run__isnull", False)),
                        fields=["run"],
                        name="trigger_event_run",
                    ),
                    models.Index(fields=["at"], name="trigger_event_at"),
                ],
            },
        ),
    ]
