"""An index of the active runs, which pages of admins count beside any number of ended ones.

It has no column that changes while a run is active, so a change of status still updates the row in place (HOT).
"""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

    dependencies: ClassVar = [("runtime", "0031_schedule_of_run")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "run",
            models.Index(
                fields=["id"], name="run_active", condition=models.Q(ended_at__isnull=True)
            ),
        ),
    ]
