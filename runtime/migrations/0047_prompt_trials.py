"""Adds the trials of prompts on recorded runs."""

from typing import ClassVar

import django.contrib.postgres.fields
from django.db import migrations, models
from django.db.models.functions import Now


class Migration(migrations.Migration):
    """Add the table."""

    dependencies: ClassVar = [("runtime", "0046_archived_entries")]

    operations: ClassVar = [
        migrations.CreateModel(
            name="PromptTrial",
            fields=[
                ("id", models.UUIDField(primary_key=True, serialize=False)),
                ("prompt", models.TextField()),
                ("number", models.IntegerField()),
                ("wanted", models.IntegerField()),
                ("by", models.TextField()),
                ("token", models.TextField(null=True)),
                ("at", models.DateTimeField(db_default=Now())),
                ("state", models.TextField()),
                ("started_at", models.DateTimeField(null=True)),
                ("ended_at", models.DateTimeField(null=True)),
                (
                    "runs",
                    django.contrib.postgres.fields.ArrayField(
                        base_field=models.UUIDField(), db_default=[], size=None
                    ),
                ),
                ("result", models.TextField(db_default="[]")),
                ("problem", models.TextField(db_default="")),
            ],
            options={
                "constraints": [
                    models.UniqueConstraint(
                        condition=models.Q(("ended_at__isnull", True)),
                        fields=("prompt",),
                        name="prompt_trial_at_once",
                    )
                ],
            },
        ),
    ]
