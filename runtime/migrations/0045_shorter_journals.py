"""Keeps the state at which a shortened journal of a live run begins."""

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    """Add the columns."""

    dependencies: ClassVar = [("runtime", "0044_buckets")]

    operations: ClassVar = [
        migrations.AddField("pruning", name, models.TextField(null=True))
        for name in ("state", "state_mac", "state_key_id")
    ]
