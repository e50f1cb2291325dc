"""An index of the passwords that a person gave: each request of a person reads them."""

from typing import ClassVar

from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

    dependencies: ClassVar = [("approvals", "0046_fill_readers")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "assignment",
            GinIndex(
                fields=["givers"],
                name="assignment_givers",
                condition=models.Q(what="password", confirmed_at__isnull=True),
            ),
        ),
    ]
