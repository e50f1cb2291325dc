"""Adds the replays of runs with today's code."""

from typing import ClassVar

from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Add the table."""

    dependencies: ClassVar = [("runtime", "0047_prompt_trials")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="RunReplay",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("run", models.UUIDField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField(db_default=Now())),
                ("state", models.TextField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                ("host", models.TextField(db_default="")),
                ("process", models.IntegerField(null=True)),
                ("compared", models.BigIntegerField(db_default=0)),
                ("entries", models.BigIntegerField(db_default=0)),
                ("result", models.TextField(db_default="")),
                ("problem", models.TextField(db_default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("run",),
                        name="run_replay_at_once",
                    )
                ],
                "indexes": [models.Index(fields=["run"], name="run_replay_of")],
            },
        ),
    ]
