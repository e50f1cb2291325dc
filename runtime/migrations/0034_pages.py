"""An index of the failed times of a schedule, whose page read its whole history."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

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
    ]
