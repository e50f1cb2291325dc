"""An index of the pending requests at high risk, by deadline: a reviewer sees those with an odd value first."""

from typing import ClassVar

from django.contrib.postgres.operations import AddIndexConcurrently
from django.db import migrations, models


class Migration(migrations.Migration):
    atomic = False  # the index is created concurrently

    dependencies: ClassVar = [("approvals", "0039_requester_and_status")]

    operations: ClassVar = [
        AddIndexConcurrently(
            "request",
            models.Index(
                fields=["expires_at", "created_at", "id"],
                name="request_high_risk",
                condition=models.Q(status="pending", risk="high"),
            ),
        ),
    ]
