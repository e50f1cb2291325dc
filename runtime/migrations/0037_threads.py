"""The thread of a run, and the run whose text another one remembers."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the indexes are created concurrently

    dependencies: ClassVar = [("runtime", "0036_triggers")]

    operations: ClassVar = [
        migrations.AddField("run", "thread", models.TextField(null=True)),
        migrations.AddField("blob", "source", models.UUIDField(null=True)),
        AddIndexConcurrently(
            "run",
            models.Index(
                fields=["thread", "-id"],
                name="run_thread",
                condition=models.Q(thread__isnull=False),
            ),
        ),
        AddIndexConcurrently(
            "blob",
            models.Index(
                fields=["source"],
                name="content_source",
                condition=models.Q(source__isnull=False),
            ),
        ),
    ]
