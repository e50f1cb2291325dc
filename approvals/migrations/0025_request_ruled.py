"""The index of pending requests that a rule of the policy applies to."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

    dependencies: ClassVar = [("approvals", "0024_policies")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "request",
            models.Index(
                fields=["created_at", "id"],
                name="request_ruled",
                condition=models.Q(status="pending", open_to__isnull=False),
            ),
        )
    ]
