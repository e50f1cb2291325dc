"""Adds schedules, the acts of people on them, and their times."""

import django.db.models.functions.datetime
from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("runtime", "0029_words"),
    ]

    operations = [
        migrations.CreateModel(
            name="ScheduleAct",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schedule",
                        "seq",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("schedule", models.UUIDField()),
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
            name="Schedule",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("name", models.TextField()),
                ("agent", models.TextField()),
                ("owner", models.TextField()),
                ("state", models.TextField(db_default="active")),
                ("problem", models.TextField(db_default="")),
                ("next_at", models.DateTimeField(null=True)),
                ("due_at", models.DateTimeField(null=True)),
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
                        name="schedule_due",
                    ),
                    models.Index(fields=["owner"], name="schedule_owner"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ScheduleTime",
            fields=[
                (
                    "pk",
                    models.CompositePrimaryKey(
                        "schedule",
                        "at",
                        blank=True,
                        editable=False,
                        primary_key=True,
                        serialize=False,
                    ),
                ),
                ("schedule", models.UUIDField()),
                ("at", models.DateTimeField()),
                ("kind", models.TextField()),
                ("state", models.TextField()),
                ("run", models.UUIDField(null=True)),
                ("reason", models.TextField(db_default="")),
                ("by", models.TextField(null=True)),
                ("token", models.TextField(null=True)),
                (
                    "made_at",
                    models.DateTimeField(db_default=django.db.models.functions.datetime.Now()),
                ),
            ],
            options={
                "indexes": [
                    models.Index(
                        condition=models.Q(("state__in", ["waiting", "started"])),
                        fields=["schedule"],
                        name="schedule_time_open",
                    )
                ],
            },
        ),
    ]
