"""An index of the suspected runs, in the order in which they are tried."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

    dependencies: ClassVar = [("runtime", "0048_run_replays")]

    operations: ClassVar = [
        AddIndexConcurrently(
            model_name="run",
            index=models.Index(
                fields=["due_at", "id"],
                name="run_suspected",
                condition=models.Q(isolated=True),
            ),
        ),
    ]
