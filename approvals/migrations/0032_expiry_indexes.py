"""The indexes of pending requests that escalate, and of those that too few people are left to decide."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the indexes are created concurrently

    dependencies: ClassVar = [("approvals", "0031_expiry")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "request",
            models.Index(
                fields=["next_at"],
                name="request_escalates",
                condition=models.Q(status="pending", next_step="escalate"),
            ),
        ),
        AddIndexConcurrently(
            "request",
            models.Index(
                fields=["undecidable_at"],
                name="request_undecidable",
                condition=models.Q(status="pending", undecidable_at__isnull=False),
            ),
        ),
    ]
