"""Indexes of the last failure of a schedule and of the last runs of an agent, whose pages read all rows."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the indexes are created concurrently

    dependencies: ClassVar = [("runtime", "0033_measures")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "scheduletime",
            models.Index(
                fields=["schedule", "-at"],
                name="schedule_time_failed",
                condition=models.Q(state="failed"),
            ),
        ),
        AddIndexConcurrently("run", models.Index(fields=["agent", "-id"], name="run_agent")),
    ]
